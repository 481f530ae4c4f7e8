#include "device/sim/streams.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "device/sim/allocators.hpp"
#include "device/sim/device_errors.hpp"

namespace lowtide::device::sim {
namespace {

thread_local StreamNumber current = kDefaultStream;

c10::Stream make_stream(StreamNumber number) {
  return c10::Stream(c10::Stream::UNSAFE, sim_device(), number);
}

c10::Stream next_pooled_stream() {
  static std::atomic<std::uint64_t> handed_out{0};
  return make_stream(1 + static_cast<StreamNumber>(handed_out.fetch_add(1) % kPooledStreams));
}

void check_index(c10::Device device) {
  TORCH_CHECK(device.type() == kSim && device.index() <= 0, "no device ", device,
              ": there is one simulated card, sim:0");
}

const EventPoint& point(void* event) {
  return *static_cast<const EventPoint*>(event);
}

class SimGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kSim; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Device getDevice() const override { return sim_device(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    check_index(device);
    return sim_device();
  }
  void setDevice(c10::Device device) const override { check_index(device); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}

  c10::Stream getStream(c10::Device) const override { return make_stream(current); }
  c10::Stream getDefaultStream(c10::Device) const override { return make_stream(kDefaultStream); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return next_pooled_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return next_pooled_stream(); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    TORCH_CHECK(stream.id() >= 0 && stream.id() <= kPooledStreams, "no stream ", stream.id(),
                " on the simulated card: use a stream that it gave out");
    const c10::Stream previous = make_stream(current);
    current = stream.id();
    return previous;
  }
  bool queryStream(const c10::Stream& stream) const override { return sim_card().query_stream(stream.id()); }
  void synchronizeStream(const c10::Stream& stream) const override {
    on_device([&] { sim_card().synchronize_stream(stream.id()); });
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    on_device([] { sim_card().synchronize(); });
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    const EventPoint recorded = sim_card().record(stream.id());
    if (*event == nullptr) {
      *event = new EventPoint(recorded);
    } else {
      *static_cast<EventPoint*>(*event) = recorded;
    }
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) sim_card().stream_waits(stream.id(), point(event));
  }
  bool queryEvent(void* event) const override { return event == nullptr || sim_card().query(point(event)); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) sim_card().host_waits(point(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<EventPoint*>(event);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(first != nullptr && second != nullptr,
                "both events must be recorded before the time between them is known");
    constexpr double kMillisecondsPerSecond = 1e3;
    return (point(second).time.seconds - point(first).time.seconds) * kMillisecondsPerSecond;
  }
};

}  // namespace

StreamNumber current_stream() {
  return current;
}

void register_device_guard() {
  c10::impl::registerDeviceGuard(kSim, new SimGuard);
}

}  // namespace lowtide::device::sim

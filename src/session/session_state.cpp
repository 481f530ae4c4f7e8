// State that lives on from job to job: when it is on the device, and how it gets home.
#include "lowtide/error.hpp"
#include "session/session_impl.hpp"

namespace lowtide {

/// Before a job of model `index`: its state is on the device; where it stays there between jobs, the states
/// of all models, so that what is kept is one number from the first job on.
void Session::Impl::enter_states(std::size_t index) {
  memory::Staging* staging = device->in_place() ? nullptr : &entries[index].loaded->staging();
  const bool stays = options.after_job == AfterJob::keep;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    if (!entry.state || (i != index && (!stays || device->in_place()))) continue;
    entry.state->enter(*device, staging, stays);
  }
}

Bytes Session::Impl::states_on_device() const {
  Bytes sum = 0;
  for (const Entry& entry : entries) sum += entry.state ? entry.state->device_bytes() : 0;
  return sum;
}

/// The device's copies go, the host's are the state.
void Session::Impl::bring_states_home() {
  for (Entry& entry : entries) {
    if (!entry.state || entry.state->device_bytes() == 0 || device->in_place()) continue;
    if (entry.loaded) entry.loaded->forget_device();
    entry.state->leave(*device);
  }
}

detail::ModelState& Session::Impl::state_at_home(std::size_t index) {
  if (index >= entries.size()) throw UsageError("no such model in this session");
  if (!entries[index].state)
    throw UsageError("this model's state is not kept: add it with ModelOptions::keep_state");
  if (device && !device->in_place()) {
    if (const std::exception_ptr error = synchronise()) std::rethrow_exception(error);
    bring_states_home();
  }
  return *entries[index].state;
}

void Session::reset_state(ModelHandle model) {
  const std::lock_guard lock(impl_->mutex);
  impl_->state_at_home(model.index).reset();
}

std::vector<NamedTensor> Session::save_state(ModelHandle model) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->state_at_home(model.index).save();
}

void Session::load_state(ModelHandle model, const std::vector<NamedTensor>& state) {
  const std::lock_guard lock(impl_->mutex);
  impl_->state_at_home(model.index).load(state);
}

}  // namespace lowtide

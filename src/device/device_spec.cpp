#include "device/device_spec.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lowtide/error.hpp"

namespace lowtide::device {
namespace {

namespace fs = std::filesystem;

/// Folder of the shipped cards: in the source tree, or where the package was installed.
fs::path card_folder() {
  for (const char* folder : {LOWTIDE_SOURCE_CARDS, LOWTIDE_INSTALLED_CARDS}) {
    if (fs::is_directory(folder)) return folder;
  }
  throw UsageError(
      "the folder configs/cards/ with the simulated cards is missing: reinstall lowtide, or pass --device "
      "sim:FILE.json");
}

std::string read_card(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file && text.empty()) throw UsageError("cannot read the card '" + path.string() + "': check the path");
  if (!nlohmann::json::accept(text))
    throw UsageError("the card '" + path.string() +
                     "' is no JSON: see configs/cards/default.json for the fields");
  return text;
}

bool looks_like_size(std::string_view text) {
  return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

std::string card_names() {
  std::string names;
  for (const auto& entry : fs::directory_iterator(card_folder())) {
    if (entry.path().extension() == ".json")
      names += (names.empty() ? "" : ", ") + entry.path().stem().string();
  }
  return names;
}

std::string find_card(std::string_view text) {
  const fs::path named = card_folder() / (std::string(text) + ".json");
  if (text.find('/') == std::string_view::npos && fs::is_regular_file(named)) return read_card(named);
  if (fs::is_regular_file(fs::path(text))) return read_card(fs::path(text));
  if (looks_like_size(text)) {
    auto card = nlohmann::json::parse(default_card_json());
    card["name"] = std::string(text);
    card["total_bytes"] = parse_bytes(text);
    return card.dump();
  }
  throw UsageError("no simulated card '" + std::string(text) + "': use a name (" + card_names() +
                   "), a file, or a size such as sim:6GiB");
}

}  // namespace

const char* kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::sim:
      return "sim";
  }
  return "?";
}

std::string default_card_json() {
  return read_card(card_folder() / "default.json");
}

DeviceSpec parse_device_spec(std::string_view text) {
  DeviceSpec spec;
  if (text == "cpu") return spec;
  if (text == "sim" || text.substr(0, 4) == "sim:") {
    spec.kind = DeviceKind::sim;
    spec.card_json = text == "sim" ? default_card_json() : find_card(text.substr(4));
    return spec;
  }
  if (text == "cuda" || text.substr(0, 5) == "cuda:") {
    spec.kind = DeviceKind::cuda;
    const std::string_view index = text == "cuda" ? "0" : text.substr(5);
    const auto [end, status] = std::from_chars(index.data(), index.data() + index.size(), spec.index);
    if (status == std::errc() && end == index.data() + index.size() && spec.index >= 0) return spec;
  }
  throw UsageError("unknown device '" + std::string(text) + "': use cpu, cuda, cuda:N, sim or sim:CARD");
}

}  // namespace lowtide::device

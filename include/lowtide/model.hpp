// A model in host memory: immutable, shareable between sessions and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/bytes.hpp"

namespace lowtide {

/// Size of one user input. `integer` is the value of a 0-d integer input that sizes depend on.
struct InputShape {
  std::vector<std::int64_t> sizes;
  std::optional<std::int64_t> integer = {};
};

/// One entry per flattened user input (constant inputs count); nothing where none is passed.
using InputShapes = std::vector<std::optional<InputShape>>;

namespace detail {
class ModelData;
}

/// A handle; copies share the model.
class Model {
 public:
  /// Reads graph and weight table of a .pt2 archive; the weights stay in the file until they are used.
  /// `program` picks one of several programs in the archive. Throws ArchiveError or UnsupportedOp.
  static Model open(const std::string& path, const std::string& program = {});

  const std::string& path() const;
  /// File name without extension.
  std::string name() const;
  Bytes weight_bytes() const;
  /// Names of the flattened user inputs and outputs.
  const std::vector<std::string>& input_names() const;
  const std::vector<std::string>& output_names() const;
  /// The shapes it was exported with, where the archive tells them.
  std::optional<InputShapes> sample_shapes() const;

  const detail::ModelData& data() const { return *data_; }
  std::shared_ptr<const detail::ModelData> shared_data() const { return data_; }

 private:
  explicit Model(std::shared_ptr<const detail::ModelData> data) : data_(std::move(data)) {}
  std::shared_ptr<const detail::ModelData> data_;
};

}  // namespace lowtide

// Between the named tensors of files and the positions of a model's inputs and outputs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/sha256.hpp"
#include "lowtide/job_list.hpp"
#include "lowtide/model.hpp"
#include "tensor_file/tensor_file.hpp"

namespace lowtide::app {

/// A named tensor feeds the input of that name, an all-digit name the flattened input at that position, a
/// single unnamed tensor the only input. Throws InputError for names the model does not have, and for inputs
/// fed twice.
std::vector<std::size_t> input_positions(const Model& model, const std::vector<std::string>& names);

/// The inputs of one job, read and put in order. Throws InputError.
std::vector<at::Tensor> read_inputs(const Model& model, const JobInputs& inputs);

/// Their shapes, from the file headers alone. Throws InputError for unreadable files, wrong names and wrong
/// shapes.
InputShapes read_shapes(const Model& model, const JobInputs& inputs);

/// Results as named tensors, None left out; complex ones as real pairs, which every reader of safetensors
/// knows.
struct NamedResults {
  std::vector<tensor_file::NamedTensor> tensors;
  std::map<std::string, std::string>
      metadata;  // "names": JSON list in output order, and which ones are complex
};
NamedResults name_results(const Model& model, const std::vector<at::Tensor>& results);

/// Adds name, dtype, shape and row-major bytes of each result.
void hash_results(Sha256& hash, const NamedResults& results);

}  // namespace lowtide::app

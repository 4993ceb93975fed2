// A trained model as Hugging Face's transformers has it: its config.json, and the names of its tensors.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/parameters.h"

namespace stp {

/// Throws InputError, in field `field`, where Hugging Face has no class for the model.
void check_hugging_face_has(const ModelConfig& model, const std::string& field);

/// The config.json of such a model.
nlohmann::json hugging_face_config(const ModelConfig& model);

/// Where a parameter is among the tensors of a file: "model.layers.3.self_attn.q_proj.weight" has
/// "layers.3.attn.q.weight". GPT-2 stores the weights of linear layers transposed, and q, k and v in one
/// tensor (transformers' Conv1D).
struct HuggingFaceTensor {
  std::string name;
  int64_t rows, columns;  // of the tensor, before it is transposed
  int64_t first_row = 0;  // the parameter's first
  bool transposed = false;

  [[nodiscard]] std::vector<int64_t> shape() const {
    if (columns == 1) return {rows};
    return transposed ? std::vector{columns, rows} : std::vector{rows, columns};
  }
  /// The place of an element of the parameter among the tensor's.
  [[nodiscard]] int64_t at(int64_t row, int64_t column) const {
    return transposed ? column * rows + first_row + row : (first_row + row) * columns + column;
  }
};
/// `parameter` is one of model_parameters(), and `part` its sizes. Requires check_hugging_face_has().
HuggingFaceTensor hugging_face_tensor(const ModelConfig& model, const std::string& parameter,
                                      const ParameterPart& part);

}  // namespace stp

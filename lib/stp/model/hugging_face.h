// Hugging Face's config.json as a model file (config.h); a trained model as its transformers have it.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/parameters.h"

namespace stp {

/// A model file made of a config.json, and what became of each field.
struct ImportedModel {
  struct Field {
    std::string name, what;  // as given, and our field or the reason why it is left out
  };
  std::string type;                         // Hugging Face's model_type
  std::shared_ptr<nlohmann::json> content;  // for read_model(); null: none was imported
  std::vector<Field> taken, left_out;
  int window = 0;                    // tokens that sliding window attention sees; 0: all. Ours sees all
  std::vector<std::string> ignored;  // fields left out that say something which ours does not do

  /// How ours differs from the model; "" if in nothing that is known.
  [[nodiscard]] std::string note() const;
};

/// Whether `content` is Hugging Face's: it has a `model_type` or `architectures`, and neither our `name` nor
/// our `source`.
bool is_hugging_face(const nlohmann::json& content);

/// Reads a config.json of the families llama, mistral, qwen2, qwen3, gpt2 and gpt_neox. `name` is the
/// model's; "": the last part of its `_name_or_path`, else that of the file's path that is not "config".
/// Throws InputError for other families, and for what changes the work in a way that a model file cannot say.
ImportedModel import_hugging_face(const nlohmann::json& content, const std::string& file,
                                  const std::string& name = "");

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

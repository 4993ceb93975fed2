// Hugging Face's config.json as a model file (config.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stp {

/// A model file made of a config.json, and what became of each field.
struct ImportedModel {
  struct Field {
    std::string name, what;  // as given, and our field or the reason why it is left out
  };
  std::string type;        // Hugging Face's model_type
  nlohmann::json content;  // for read_model()
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

}  // namespace stp

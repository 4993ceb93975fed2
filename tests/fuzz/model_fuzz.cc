// Fuzz target of the reader of models: our files and config.json. An accepted model has what its file says,
// and finite work; a config.json is the model of the file that is made of it.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "require.h"
#include "stp/base/json_input.h"
#include "stp/model/config.h"
#include "stp/model/hugging_face.h"

namespace {

using namespace stp;

void check_values(const ModelConfig& model, const nlohmann::json& content, const std::string& text) {
  for (const int size :
       {model.layers, model.hidden, model.ffn, model.q_heads, model.kv_heads, model.head_dim, model.vocab})
    require(size >= 1, "sizes are positive", text);
  require(model.q_heads % model.kv_heads == 0, "heads divide evenly", text);
  for (const double amount :
       {model.parameters(), model.vocabulary_parameters(), model_flops(model, 4096, 64)})
    require(std::isfinite(amount) && amount > 0, "its work is finite", text);
  for (const auto& [name, value] :
       {std::pair{"num_hidden_layers", model.layers}, {"hidden_size", model.hidden}})
    if (content.contains(name)) require(content.at(name) == value, "it has the sizes of its file", text);
}

}  // namespace

void stp::check(const std::string& text) {
  nlohmann::json content = parse_json(text, "fuzz.json");
  require(refuses([&] { parse_json(text + "x", "fuzz.json"); }), "trailing text is refused", text);
  const ModelConfig model = read_model(content, "fuzz.json");
  check_values(model, content, text);
  if (is_hugging_face(content)) {
    const ImportedModel import = import_hugging_face(content, "fuzz.json");
    require(read_model(*import.content, "fuzz.json") == model, "an import is the same model", text);
    static_cast<void>(import.note());
  } else {
    content["unknown"] = 1;
    require(refuses([&] { read_model(content, "fuzz.json"); }), "an unknown field is refused", text);
  }
}

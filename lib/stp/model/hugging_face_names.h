// A trained model as Hugging Face's transformers has it: its config.json, and the names of its tensors.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "stp/model/config.h"

namespace stp {

/// Throws InputError, in field `field`, where Hugging Face has no class for the model.
void check_hugging_face_has(const ModelConfig& model, const std::string& field);

/// The config.json of such a model.
nlohmann::json hugging_face_config(const ModelConfig& model);

/// "model.layers.3.self_attn.q_proj.weight" for parameter_name()'s "layers.3.attn.q.weight".
std::string hugging_face_name(const std::string& parameter);

}  // namespace stp

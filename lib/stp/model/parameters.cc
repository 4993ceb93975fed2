#include "stp/model/parameters.h"

#include <cmath>
#include <numbers>

namespace stp {
namespace {

uint64_t mix(uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double uniform(uint64_t key) { return (static_cast<double>(mix(key) >> 11) + 0.5) * 0x1p-53; }

double normal(uint64_t key) {  // Box and Muller
  return std::sqrt(-2 * std::log(uniform(key))) *
         std::cos(2 * std::numbers::pi * uniform(key ^ 0xd1b54a32d192ed03));
}

constexpr const char* kVision = "vision.";

// `unit`: the names' beginning; `d`: columns of the norm.
void add_norm(std::vector<Parameter>& to, const std::string& unit, int64_t d) {
  to.push_back({{{unit + ".norm.gain", d, 1, Split::none}}, Role::norm});
}
void add_norm_bias(std::vector<Parameter>& to, const ModelConfig& model, const std::string& unit, int64_t d) {
  if (model.norm() == Norm::layer)
    to.push_back({{{unit + ".norm.bias", d, 1, Split::none}}, Role::norm_bias});
}

std::vector<Parameter> attention_parameters(const ModelConfig& model, const std::string& unit) {
  const int64_t h = model.hidden, q = int64_t{model.q_heads} * model.head_dim,
                kv = int64_t{model.kv_heads} * model.head_dim;
  std::vector<Parameter> attn;
  const auto qkv = [&](const std::string& what, int64_t columns) {
    return std::vector<ParameterPart>{{unit + ".q." + what, q, columns, Split::rows},
                                      {unit + ".k." + what, kv, columns, Split::rows},
                                      {unit + ".v." + what, kv, columns, Split::rows}};
  };
  add_norm(attn, unit, h);
  attn.push_back({qkv("weight", h), Role::first});
  if (model.biases() != Biases::none) attn.push_back({qkv("bias", 1), Role::first_bias});
  attn.push_back({{{unit + ".projection.weight", h, q, Split::columns}}, Role::second});
  if (model.biases() == Biases::all)
    attn.push_back({{{unit + ".projection.bias", h, 1, Split::none}}, Role::second_bias});
  add_norm_bias(attn, model, unit, h);
  if (model.variant.query_key_norm)
    attn.push_back({{{unit + ".q_norm.gain", model.head_dim, 1, Split::none},
                     {unit + ".k_norm.gain", model.head_dim, 1, Split::none}},
                    Role::query_key_norm});
  return attn;
}

// A norm of d columns and two linear layers, from `columns` columns to `out`.
std::vector<Parameter> mlp_parameters(const ModelConfig& model, const std::string& unit, int64_t d,
                                      int64_t columns, int64_t inner, int64_t out) {
  std::vector<Parameter> mlp;
  const auto first = [&](const std::string& what, int64_t of) {
    if (!model.gated()) return std::vector<ParameterPart>{{unit + ".fc1." + what, inner, of, Split::rows}};
    return std::vector<ParameterPart>{{unit + ".gate." + what, inner, of, Split::rows},
                                      {unit + ".up." + what, inner, of, Split::rows}};
  };
  const std::string second = unit + (model.gated() ? ".down." : ".fc2.");
  add_norm(mlp, unit, d);
  mlp.push_back({first("weight", columns), Role::first});
  mlp.push_back({{{second + "weight", out, inner, Split::columns}}, Role::second});
  if (model.biases() == Biases::all) {
    mlp.push_back({first("bias", 1), Role::first_bias});
    mlp.push_back({{{second + "bias", out, 1, Split::none}}, Role::second_bias});
  }
  add_norm_bias(mlp, model, unit, d);
  return mlp;
}

std::vector<Parameter> vision_unit_parameters(const ModelConfig& model, Unit unit) {
  const ModelConfig encoder = model.encoder();
  const int64_t d = encoder.hidden, merged = kTokensMerged * d;
  if (unit == Unit::patches)
    return {{{{"vision.patches.weight", d, kPatchElements, Split::none}}, Role::first}};
  if (unit == Unit::merger) return mlp_parameters(encoder, "vision.merger", d, merged, merged, model.hidden);
  if (unit == Unit::vision_mlp) return mlp_parameters(encoder, "vision.mlp", d, d, encoder.ffn, d);
  return attention_parameters(encoder, "vision.attn");
}

}  // namespace

int64_t Parameter::local_rows(int tp) const {
  int64_t rows = 0;
  for (const ParameterPart& part : parts) rows += part.local_rows(tp);
  return rows;
}

std::vector<Parameter> unit_parameters(const ModelConfig& model, Unit unit) {
  const int64_t h = model.hidden;
  switch (unit) {
    case Unit::attn:
      return attention_parameters(model, "attn");
    case Unit::mlp:
      return mlp_parameters(model, "mlp", h, h, model.ffn, h);
    case Unit::head: {
      std::vector<Parameter> head;
      add_norm(head, "head", h);
      head.push_back(
          {{{model.tied() ? "embedding.weight" : "head.weight", model.vocab, h, Split::rows}}, Role::first});
      add_norm_bias(head, model, "head", h);
      return head;
    }
    case Unit::embedding: {
      std::vector<Parameter> embedding{{{{"embedding.weight", model.vocab, h, Split::rows}}, Role::first}};
      if (model.positions > 0)
        embedding.push_back(
            {{{"embedding.positions.weight", model.positions, h, Split::none}}, Role::second});
      return embedding;
    }
    default:
      return model.has_vision() ? vision_unit_parameters(model, unit) : std::vector<Parameter>{};
  }
}

double parameters_of_rank(const ModelConfig& model, Unit unit, const Strategy& strategy) {
  return model.parameters_of(unit) / strategy.tp +
         (unit == Unit::embedding ? model.position_parameters() : 0);
}

std::string parameter_name(const ParameterPart& part, int layer) {
  if (layer < 0) return part.name;
  const bool vision = part.name.starts_with(kVision);
  const std::string prefix = vision ? kVision : "", name = part.name.substr(prefix.size());
  return prefix + "layers." + std::to_string(layer) + "." + name;
}

std::map<std::string, ParameterPart> model_parameters(const ModelConfig& model) {
  std::map<std::string, ParameterPart> all;
  for (const Unit unit : kUnits) {
    const int layers = !is_of_layer(unit) ? 1 : is_vision(unit) ? model.vision.layers : model.layers;
    for (const Parameter& parameter : unit_parameters(model, unit))
      for (const ParameterPart& part : parameter.parts)
        for (int layer = 0; layer < layers; ++layer)
          all.emplace(parameter_name(part, is_of_layer(unit) ? layer : -1), part);
  }
  return all;
}

void initial_values(const Initialisation& initialisation, const std::string& name, int64_t first_row,
                    int64_t rows, int64_t first_column, int64_t columns, double* values) {
  const bool gain = name.ends_with(".gain");
  const double deviation = gain                      ? initialisation.gain_deviation
                           : name.ends_with(".bias") ? initialisation.bias_deviation
                                                     : initialisation.weight_deviation;
  uint64_t key = mix(initialisation.seed);
  for (const char c : name) key = mix(key ^ static_cast<unsigned char>(c));
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t row_key = mix(key ^ static_cast<uint64_t>(first_row + row));
    for (int64_t column = 0; column < columns; ++column)
      *values++ =
          (gain ? 1 : 0) +
          (deviation > 0 ? deviation * normal(mix(row_key ^ static_cast<uint64_t>(first_column + column)))
                         : 0);
  }
}

}  // namespace stp

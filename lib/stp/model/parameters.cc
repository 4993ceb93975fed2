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

// A LayerNorm of d elements and two linear layers with biases: d or, merged, more columns in; `out` rows out.
std::vector<Parameter> norm_and_two_linears(const std::string& name, int64_t d, int64_t columns,
                                            int64_t inner, int64_t out) {
  return {
      {{{name + ".norm.gain", d, 1, Split::none}}, UnitPass::I, Role::norm},
      {{{name + ".fc1.weight", inner, columns, Split::rows}}, UnitPass::W_late, Role::first},
      {{{name + ".fc2.weight", out, inner, Split::columns}}, UnitPass::W_early, Role::second},
      {{{name + ".fc1.bias", inner, 1, Split::rows}}, UnitPass::W_late, Role::first_bias},
      {{{name + ".fc2.bias", out, 1, Split::none}}, UnitPass::W_early, Role::second_bias},
      {{{name + ".norm.bias", d, 1, Split::none}}, UnitPass::I, Role::norm_bias},
  };
}

std::vector<Parameter> vision_unit_parameters(const ModelConfig& model, Unit unit) {
  const int64_t d = model.vision.hidden, merged = kTokensMerged * d;
  if (unit == Unit::patches)
    return {{{{"vision.patches.weight", d, kPatchElements, Split::none}}, UnitPass::W_late, Role::first}};
  if (unit == Unit::merger) return norm_and_two_linears("vision.merger", d, merged, merged, model.hidden);
  if (unit == Unit::vision_mlp) return norm_and_two_linears("vision.mlp", d, d, model.vision.ffn, d);
  std::vector<Parameter> attn = unit_parameters(model.encoder(), Unit::attn);
  for (Parameter& parameter : attn)
    for (ParameterPart& part : parameter.parts) part.name = kVision + part.name;
  attn.push_back(
      {{{"vision.attn.projection.bias", d, 1, Split::none}}, UnitPass::W_early, Role::second_bias});
  attn.push_back({{{"vision.attn.norm.bias", d, 1, Split::none}}, UnitPass::I, Role::norm_bias});
  return attn;
}

}  // namespace

int64_t Parameter::local_rows(int tp) const {
  int64_t rows = 0;
  for (const ParameterPart& part : parts) rows += part.local_rows(tp);
  return rows;
}

std::vector<Parameter> unit_parameters(const ModelConfig& model, Unit unit) {
  const int64_t h = model.hidden, ffn = model.ffn;
  const int64_t q = int64_t{model.q_heads} * model.head_dim, kv = int64_t{model.kv_heads} * model.head_dim;
  switch (unit) {
    case Unit::attn: {
      std::vector<Parameter> attn{{{{"attn.norm.gain", h, 1, Split::none}}, UnitPass::I, Role::norm},
                                  {{{"attn.q.weight", q, h, Split::rows},
                                    {"attn.k.weight", kv, h, Split::rows},
                                    {"attn.v.weight", kv, h, Split::rows}},
                                   UnitPass::W_late,
                                   Role::first}};
      if (model.biases() != Biases::none)
        attn.push_back({{{"attn.q.bias", q, 1, Split::rows},
                         {"attn.k.bias", kv, 1, Split::rows},
                         {"attn.v.bias", kv, 1, Split::rows}},
                        UnitPass::W_late,
                        Role::first_bias});
      attn.push_back({{{"attn.projection.weight", h, q, Split::columns}}, UnitPass::W_early, Role::second});
      return attn;
    }
    case Unit::mlp:
      return {
          {{{"mlp.norm.gain", h, 1, Split::none}}, UnitPass::I, Role::norm},
          {{{"mlp.gate.weight", ffn, h, Split::rows}, {"mlp.up.weight", ffn, h, Split::rows}},
           UnitPass::W_late,
           Role::first},
          {{{"mlp.down.weight", h, ffn, Split::columns}}, UnitPass::W_early, Role::second},
      };
    case Unit::head:
      return {
          {{{"head.norm.gain", h, 1, Split::none}}, UnitPass::I, Role::norm},
          {{{model.tied() ? "embedding.weight" : "head.weight", model.vocab, h, Split::rows}},
           UnitPass::W_late,
           Role::first},
      };
    case Unit::embedding:
      return {{{{"embedding.weight", model.vocab, h, Split::rows}}, UnitPass::W_late, Role::first}};
    default:
      return model.has_vision() ? vision_unit_parameters(model, unit) : std::vector<Parameter>{};
  }
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

// The trained parameters of a model, by unit: names, full sizes, and their division by tensor parallelism.
// The runtime's shards and the unsharded reference both use this list.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/strategy.h"
#include "stp/model/unit.h"

namespace stp {

/// How the ranks of a tensor-parallel group share a matrix [output features, input features].
enum class Split : uint8_t {
  none,     // every rank holds all of it
  rows,     // column-parallel linears in Megatron-LM's terms; the vocabulary
  columns,  // row-parallel linears in Megatron-LM's terms
};

/// A matrix of the model, unsharded; vectors have one column.
struct ParameterPart {
  std::string name;  // "attn.q.weight"; parameter_name() adds the layer
  int64_t rows, columns;
  Split split;

  [[nodiscard]] int64_t local_rows(int tp) const { return split == Split::rows ? rows / tp : rows; }
  [[nodiscard]] int64_t local_columns(int tp) const {
    return split == Split::columns ? columns / tp : columns;
  }
};

/// What a parameter is in its unit: of the norm, or of the first or second linear layer, or of the norms of q
/// and k. A table is a first, that of positions a second.
enum class Role : uint8_t { norm, norm_bias, first, first_bias, second, second_bias, query_key_norm };

/// One tensor of a rank: the shards of its parts, concatenated by rows (q, k and v; gate and up).
struct Parameter {
  std::vector<ParameterPart> parts;
  Role role;
  /// The axes along which ranks share its split parts; those over which its gradient is summed, and ZeRO-1
  /// divides its optimizer's state.
  Axes shards{.tp = true}, replicas = kReplicas;

  [[nodiscard]] int64_t local_rows(int tp) const;
  [[nodiscard]] int64_t columns(int tp) const { return parts[0].local_columns(tp); }
  [[nodiscard]] bool vector() const { return role != Role::first && role != Role::second; }
  /// Whether each rank's gradient is only one summand: true for parameters that all ranks hold unsharded.
  [[nodiscard]] bool partial_gradient() const { return parts[0].split == Split::none; }
};

/// Each unit's parameters. attn: norm, q, k and v, projection. mlp: norm, gate and up, down; fc1 and fc2
/// where it is not gated. head: norm, projection onto the vocabulary. embedding: its table, and that of
/// learned positions. Units of a vision encoder: the same, and those of the merger as an mlp's; patches: one
/// matrix. Which have biases, and norms of q and k, says the model. A tied head has the embedding's table, by
/// its name: a copy, with the same values and, once they are summed, the same gradients.
std::vector<Parameter> unit_parameters(const ModelConfig& model, Unit unit);

/// Parameters of a unit on a rank, in one layer, as if tensor parallelism divided all but learned positions.
double parameters_of_rank(const ModelConfig& model, Unit unit, const Strategy& strategy);

/// "layers.3.attn.q.weight" or "vision.layers.3.attn.q.weight". `layer` counts over the whole language model
/// or encoder; −1 for units outside layers.
std::string parameter_name(const ParameterPart& part, int layer);
/// All parameters of a model, by parameter_name().
std::map<std::string, ParameterPart> model_parameters(const ModelConfig& model);

/// Initial weights: normal. An element depends only on seed, name and position, so a rank makes its shard
/// without the full matrix. Norm gains are 1 + gain_deviation · normal.
struct Initialisation {
  uint64_t seed = 1;
  double weight_deviation = 0.02, bias_deviation = 0, gain_deviation = 0;
  bool operator==(const Initialisation&) const = default;
};
/// Fills `values` with the block [first_row, first_row + rows) × [first_column, first_column + columns) of
/// the full matrix `name`.
void initial_values(const Initialisation& initialisation, const std::string& name, int64_t first_row,
                    int64_t rows, int64_t first_column, int64_t columns, double* values);

}  // namespace stp

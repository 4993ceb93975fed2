// Seconds per op: the one table that unit costs and hardware models both fill in.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/program/lower.h"

namespace stp {

/// Seconds that an all-gather before a unit's pass and the reduce-scatter behind it add to it.
struct ExposedCollectives {
  double gather = 0, scatter = 0;
};

struct CostTable {
  std::array<std::array<double, kUnitPasses.size()>, kUnits.size()> unit{};  // by unit and pass, one layer
  /// F and I of attn or mlp where Program::division divides them, by step; at() has the whole.
  struct Parts {
    double norm = 0;
    std::vector<double> before, core, after;

    [[nodiscard]] double step(UnitPart part, int step) const;
  };
  std::array<std::array<Parts, 2>, 2> parts;  // of attn and mlp, of F and I
  double kv_exchange = 0;                     // of keys and values of a rank's tokens, or of their gradients
  double qkv_all_to_all = 0,
         output_all_to_all = 0;  // of q, k and v, of the attention's output, or of gradients
  double all_reduce = 0;
  double vision_all_reduce = 0, merged_all_reduce = 0;  // of a vision encoder's units; of the merger's F
  double reduce_scatter = 0, all_gather = 0;            // replace it with sequence parallelism
  /// With TpOverlap::flux, what fusion leaves of them, by unit, of F and I; a reduce-scatter of the embedding
  /// and an all-gather for its gradient are not fused.
  std::optional<std::array<std::array<ExposedCollectives, 2>, kUnits.size()>> fused;
  // With tp_overlap: of the rows of one rank, and of a piece of an output; and in B, where whole collectives
  // run beside them, what replaces the last part of I and W_late of attn and mlp.
  double row_exchange = 0, piece_scatter = 0;
  struct Bulk {
    double after_I, W_late;
  };
  std::optional<std::array<Bulk, 2>> bulk;
  bool recomputed = false;  // whether a backward recomputes its layers' forward
  // One microbatch's tensor, one hop; the third between nodes, where the same block has a transfer to a rank
  // of yet another node: both go through one adapter.
  double transfer_within_node = 0, transfer_between_nodes = 0, transfer_beside_another = 0;
  std::vector<int> node_of_rank;  // by pipeline rank, ranks of one number on one node; empty: all
  std::vector<double> optimizer;  // by pipeline rank; empty: none
  /// With post-validation, by pipeline rank; empty: none. The norm's transfers are of a number.
  std::vector<double> gradient_norm;
  double number_within_node = 0, number_between_nodes = 0;
  // By virtual stage and bucket; empty: by its layers. With ZeRO-1 the second is of the reduce-scatter, the
  // third of the all-gather, and neither is the first's half where latencies count.
  std::vector<std::vector<double>> gradient_reduce, gradient_scatter, weight_gather;
  double gradient_reduce_per_layer = 0;  // the other two: half of it
  double embedding_reduce = 0;           // of tied embeddings
  // Of an offloaded activation to the host and back. By virtual stage; empty: by its layers.
  std::vector<double> offload, reload;
  std::vector<double> offload_of_all;                  // of all that the activation keeps, by virtual stage
  double offload_per_layer = 0, reload_per_layer = 0;  // of all that a layer keeps
  // Of the model's layers, how much longer each one's compute takes; of the step's microbatches, how much
  // longer all that is done for each one takes. Empty: all 1.
  std::vector<double> layer_factors, microbatch_factors;

  [[nodiscard]] double& at(Unit u, UnitPass pass) {
    return unit[static_cast<size_t>(u)][static_cast<size_t>(pass)];
  }
  [[nodiscard]] double at(Unit u, UnitPass pass) const {
    return unit[static_cast<size_t>(u)][static_cast<size_t>(pass)];
  }
  [[nodiscard]] double all_reduce_of(Unit u, UnitPass pass) const {
    if (!is_vision(u)) return all_reduce;
    return u == Unit::merger && pass == UnitPass::F ? merged_all_reduce : vision_all_reduce;
  }
  [[nodiscard]] Parts& parts_of(Unit u, UnitPass pass) {
    return parts[static_cast<size_t>(u)][static_cast<size_t>(pass)];
  }
  [[nodiscard]] const Parts& parts_of(Unit u, UnitPass pass) const {
    return parts[static_cast<size_t>(u)][static_cast<size_t>(pass)];
  }
  [[nodiscard]] ExposedCollectives collectives(Unit u, UnitPass pass) const {
    const bool both = pass == UnitPass::F || pass == UnitPass::I;
    if (!fused || !both || u == Unit::embedding) return {all_gather, reduce_scatter};
    return (*fused)[static_cast<size_t>(u)][pass == UnitPass::F ? 0 : 1];
  }
  [[nodiscard]] double weight_gradients(Unit u) const {
    return at(u, UnitPass::W_early) + at(u, UnitPass::W_late);
  }
};

/// The table of a scenario's `costs.unit`: seconds ≥ 0, zero where left out; keys as to_string(unit, pass),
/// `all_reduce`, `p2p`, `gradient_reduce`, `offload` and `reload`. With context parallelism attn.F and attn.I
/// are replaced by their parts, attn.F_before, attn.F_core (a step), attn.F_after and the same of I; and
/// there is `kv_exchange`, or `all_to_all`.
CostTable unit_cost_table(JsonInput input, const Division& division = {});

/// Each op's seconds.
std::vector<double> op_seconds(const Program& program, const CostTable& table);

/// The factor of a microbatch of the Program, which may divide each of the step's.
double microbatch_factor(const std::vector<double>& factors, const Program& program, int microbatch);

/// The share of one layer's forward that its all-reduces take where nothing overlaps them; none where it
/// takes no time.
std::optional<double> tp_communication_share(const CostTable& table);

/// How much a schedule may offload at no cost (section 4.4 of the paper): the largest ratio, at most 1, with
/// which a copy to the host takes no longer than the forward in front of it, where that is a block alone, as
/// in the warm-up, and nothing delays it; the least over all such copies. The Program's own ratio is within
/// it if its copies are. None where there is no such copy.
std::optional<double> offload_ratio_bound(const Program& program, const CostTable& table);

/// The costs that a cost-aware generator gets: the passes of one chunk of `layers` layers run alone, each
/// with its exposed collectives and exchanges, and a hop's transfer. `lowering`: of the Program's layers, if
/// something divides their units.
PassCosts pass_costs(const CostTable& table, double layers, const Lowering& lowering = {});

}  // namespace stp

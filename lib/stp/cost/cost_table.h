// The table of seconds per op. Unit costs and hardware models both fill it.
#pragma once

#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "stp/model/components.h"
#include "stp/program/lower.h"

namespace stp {

/// Seconds that the all-gather before a unit's pass, and the reduce-scatter after it, add to the pass.
struct ExposedCollectives {
  double gather = 0, scatter = 0;
};

struct CostTable {
  std::array<std::array<double, kUnitPasses.size()>, kUnits.size()> unit{};  // by unit and pass, one layer
  /// For passes whose time differs by pipeline rank; at() has the mean.
  std::map<std::pair<Unit, UnitPass>, std::vector<double>> by_rank;
  /// F and I of attn or mlp by step, if the Program's strategy divides them; at() has the whole pass.
  struct Parts {
    double norm = 0;
    std::vector<double> before, core, after;

    [[nodiscard]] double step(UnitPart part, int step) const;
  };
  std::array<std::array<Parts, 2>, kUnits.size()> parts;  // by unit, of F and I
  std::array<double, std::size(kExchanges)> exchange{};
  double all_reduce = 0;
  double vision_all_reduce = 0, merged_all_reduce = 0;  // a vision encoder's units; the merger's F
  double reduce_scatter = 0, all_gather = 0;            // with sequence parallelism, in place of all_reduce
  /// With TpOverlap::flux: the parts of these that fusion does not hide, by unit, for F and I. The
  /// embedding's reduce-scatter and its gradient's all-gather are not fused.
  std::optional<std::array<std::array<ExposedCollectives, 2>, kUnits.size()>> fused;
  // With tp_overlap: what follows a piece of attn's or mlp's output, and the last one. In B, whole
  // collectives overlap attn and mlp; `bulk` replaces their last part of I and their W_late.
  std::array<double, 2> piece_scatter{}, last_piece_scatter{};
  struct Bulk {
    double after_I, W_late;
  };
  std::optional<std::array<Bulk, 2>> bulk;
  // One hop of one microbatch's tensor. `beside_another`: between nodes, while the same block sends to
  // another rank on another node, and both transfers share one adapter.
  double transfer_within_node = 0, transfer_between_nodes = 0, transfer_beside_another = 0;
  std::vector<int> node_of_rank;  // by pipeline rank: number of its node; empty: one node
  std::vector<double> optimizer;  // by pipeline rank; empty: none
  /// With post-validation, by pipeline rank; empty: none. The norm's transfers carry one number.
  std::vector<double> gradient_norm;
  double number_within_node = 0, number_between_nodes = 0;
  // By virtual stage and bucket; empty: by its layers. With ZeRO-1, `gradient_scatter` is the reduce-scatter
  // and `weight_gather` the all-gather. If latencies count, neither is half of gradient_reduce.
  std::vector<std::vector<double>> gradient_reduce, gradient_scatter, weight_gather;
  double gradient_reduce_per_layer = 0;  // gradient_scatter and weight_gather: half of it
  double embedding_reduce = 0;           // for tied embeddings
  /// Collectives of all pipeline ranks, which share the vocabulary: of a stage's output or its gradient, of
  /// S's statistics, or of a gradient and these. `in_S`: what one barrier adds to the head's I.
  struct OfAllStages {
    double broadcast = 0, sum = 0, statistics = 0, sum_and_statistics = 0, in_S = 0;
  } vocabulary;
  std::vector<double> pipeline_reduce;  // by pipeline rank; empty: by the layers of its chunks
  // An offloaded activation to the host and back. By virtual stage; empty: by its layers.
  std::vector<double> offload, reload;
  std::vector<double> offload_of_all;                  // of all that the activation keeps, by stage
  double offload_per_layer = 0, reload_per_layer = 0;  // of a layer's whole activation
  // Factors: of each model layer's compute; of everything that is done for each of the step's microbatches.
  // Empty: all 1.
  std::vector<double> layer_factors, microbatch_factors;

  [[nodiscard]] double& at(Unit u, UnitPass pass) {
    return unit[static_cast<size_t>(u)][static_cast<size_t>(pass)];
  }
  [[nodiscard]] double at(Unit u, UnitPass pass) const {
    return unit[static_cast<size_t>(u)][static_cast<size_t>(pass)];
  }
  [[nodiscard]] double& at(Exchange each) { return exchange[static_cast<size_t>(each)]; }
  [[nodiscard]] double at(Exchange each) const { return exchange[static_cast<size_t>(each)]; }
  [[nodiscard]] double on_rank(int rank, Unit u, UnitPass pass) const {
    if (by_rank.empty()) return at(u, pass);
    const auto found = by_rank.find({u, pass});
    return found == by_rank.end() ? at(u, pass) : found->second.at(rank);
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
  /// Whether two pipeline ranks are on one node.
  [[nodiscard]] bool near(int rank, int other) const {
    return node_of_rank.empty() || node_of_rank[rank] == node_of_rank[other];
  }
  [[nodiscard]] double weight_gradients(Unit u) const {
    return at(u, UnitPass::W_early) + at(u, UnitPass::W_late);
  }
};

/// Each op's seconds.
std::vector<double> op_seconds(const Program& program, const CostTable& table);
/// The same where all factors are 1.
std::vector<double> op_seconds_without_factors(const Program& program, const CostTable& table);

/// The factor of a Program's microbatch. The Program may divide each of the step's microbatches.
double microbatch_factor(const std::vector<double>& factors, const Program& program, int microbatch);

/// The share of its all-reduces in one layer's forward without overlap; none if the forward takes no time.
std::optional<double> tp_communication_share(const CostTable& table);

/// The ratio up to which a schedule offloads at no cost (section 4.4 of the paper). It is the largest ratio,
/// at most 1, at which a copy to the host takes no longer than its forward, if the forward is an unbraided
/// block, as in the warm-up, and nothing delays the copy; the least over all such copies. If the Program's
/// copies are within this bound, so is its own ratio. None if there is no such copy, or copies
/// are planned.
std::optional<double> offload_ratio_bound(const Program& program, const CostTable& table,
                                          const std::vector<double>& seconds);

/// The costs for a cost-aware generator: the passes of one chunk of `layers` layers, alone, with exposed
/// collectives and exchanges, and one transfer. `lowering`: that of the Program.
PassCosts pass_costs(const CostTable& table, int layers, const Lowering& lowering = {});

}  // namespace stp

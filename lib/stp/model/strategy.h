// How a model is divided over ranks, and how their passes are: a scenario's `parallel` and the options beside
// it. Read and checked once, it goes whole into the Program.
#pragma once

#include <cstdint>

#include "stp/model/unit.h"

namespace stp {

/// What a backward recomputes instead of saving it, by parts. Those of a unit are recomputed inside its I, up
/// to the input of its second linear layer: the unit's output is not needed again, nor its all-reduce.
struct Recompute {
  bool core = false;   // the core of the attention, between its two linear layers
  bool qkv = false;    // its first linear layer, bias and rotary embedding
  bool mlp = false;    // the first linear layer of the MLP and its activation
  bool norm = false;   // what the norms of attention and MLP make, from their inputs
  bool layer = false;  // every layer from its input, its collectives included, as segments of the Program

  /// Whether I recomputes the first linear layer of `unit`, from all rows of the norm's output.
  [[nodiscard]] bool first_linear(Unit unit) const;
  /// Whether I recomputes the norm of `unit`.
  [[nodiscard]] bool norm_of(Unit unit) const;
  /// Whether I recomputes the core of `unit`.
  [[nodiscard]] bool core_of(Unit unit) const;
  bool operator==(const Recompute&) const = default;
};

/// All choices, by the names that scenarios use. `selective`, `full`: Korthikanti et al., arXiv 2205.05198,
/// section 5; the sets of units: Table 9 of the paper.
struct NamedRecompute {
  const char* name;
  Recompute choice;
};
inline constexpr NamedRecompute kRecomputes[] = {
    {"none", {}},
    {"selective", {.core = true}},
    {"full", {.layer = true}},
    {"mlp", {.mlp = true}},
    {"attn+mlp", {.core = true, .qkv = true, .mlp = true}},
    {"attn+mlp+norm", {.core = true, .qkv = true, .mlp = true, .norm = true}}};

/// What hides the collectives of tensor parallelism besides braids.
/// `megatron`, with sequence parallelism: inside their own unit, as Megatron-LM's --tp-comm-overlap with
/// Transformer Engine's defaults. Where a linear layer needs all rows (QKV and fc1 in F, proj and fc2 in I),
/// the ranks of the group, as a ring, pass rows on while the GEMM works on those that are there (`ring
/// exchange`); the second linear layer of F makes its output in kPipelineSteps pieces of columns, each
/// reduce-scattered while the next is made (`pipeline`). In B the input gradient of QKV and fc1 runs beside
/// the whole gathering of their input, and their weight gradient beside the whole reduce-scatter of their
/// input's gradient (`bulk`).
/// `domino`: halves of each microbatch, braided with each other (DeepSpeed, arXiv 2409.15241).
/// `flux`, with sequence parallelism: GEMMs fused with the collective before or behind them (arXiv
/// 2406.06858), a variant of the cost model, which no backend runs.
enum class TpOverlap : uint8_t { none, megatron, domino, flux };
inline constexpr int kPipelineSteps = 4;  // Transformer Engine's num_splits of the method `pipeline`

/// How the ranks that share each sequence attend to all of it. `ring`: keys and values pass from rank to rank
/// (Liu et al., Ring Attention, arXiv 2310.01889). `all_to_all`: before the core each rank gets its share of
/// the heads for all rows, and gives their output back behind it (DeepSpeed-Ulysses, arXiv 2309.14509;
/// Transformer Engine's cp_comm_type a2a).
enum class CpMethod : uint8_t { ring, all_to_all };

/// What divides F and I of attn and mlp into parts, and parts into steps.
struct Division {
  int cp = 1;  // ranks that share each sequence: with a ring, steps of the attention's core
  TpOverlap tp_overlap = TpOverlap::none;
  int tp = 1;  // ranks of the ring, each with the rows of one step
  CpMethod cp_method = CpMethod::ring;

  /// Whether the core has all rows of some heads.
  [[nodiscard]] bool exchanges_heads() const { return cp > 1 && cp_method == CpMethod::all_to_all; }
  /// Whether keys and values pass from rank to rank.
  [[nodiscard]] bool in_ring() const { return cp > 1 && cp_method == CpMethod::ring; }

  /// Whether collectives overlap the steps of parts: a rank alone has none.
  [[nodiscard]] bool overlaps() const { return tp_overlap == TpOverlap::megatron && tp > 1; }
  [[nodiscard]] bool divides(Unit unit) const { return (cp > 1 || overlaps()) && is_in_parts(unit); }
  /// Of a part of F or I of a unit that is divided.
  [[nodiscard]] int steps(Unit unit, UnitPass pass, UnitPart part) const;
  /// Exchanges of context parallelism before, between and behind the steps of its core in F or I.
  [[nodiscard]] int core_exchanges(Unit unit, UnitPass pass) const;
  bool operator==(const Division&) const = default;

 private:
  [[nodiscard]] bool is_in_parts(Unit unit) const;  // where anything is divided
};

struct Strategy {
  int tp = 1, cp = 1, dp = 1,
      pp = 1;  // ranks that share a layer's tensors, a sequence, the samples, the layers
  CpMethod cp_method = CpMethod::ring;
  bool sequence_parallel = false;  // reduce-scatters and all-gathers in place of all-reduces
  Recompute recompute;
  TpOverlap tp_overlap = TpOverlap::none;
  double offload = 0;            // the largest share of an offloaded activation's bytes that goes to the host
  bool zero = false;             // ZeRO-1, where there are replicas: they share the optimizer's state
  bool post_validation = false;  // the gradients' norm is checked in the next step

  /// Ranks that hold the same parameters.
  [[nodiscard]] int replicas() const { return cp * dp; }
  [[nodiscard]] int world_size() const { return tp * replicas() * pp; }
  /// Into how many microbatches the Program divides each: with Domino two.
  [[nodiscard]] int parts_of_microbatch() const { return tp_overlap == TpOverlap::domino ? 2 : 1; }
  [[nodiscard]] Division division() const { return {cp, tp_overlap, tp, cp_method}; }
  /// Without what adds ops beside compute and its collectives.
  [[nodiscard]] Strategy of_compute() const {
    Strategy strategy = *this;
    strategy.offload = 0;
    strategy.zero = strategy.post_validation = false;
    return strategy;
  }
};

}  // namespace stp

// The division of a model over ranks, and the options of its passes: a scenario's `parallel` and the keys
// beside it. The Program holds it whole.
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/unit.h"

namespace stp {

/// The parts that a backward recomputes instead of saving them. I of a unit recomputes the unit's parts up to
/// the input of its second linear layer; the unit's output and its all-reduce are not needed again.
struct Recompute {
  bool core = false;        // attention's core, between its two linear layers
  bool qkv = false;         // attention's first linear layer, bias and rotary embedding
  bool mlp = false;         // the first linear layer of the MLP
  bool activation = false;  // the activation of the MLP
  bool norm = false;        // the norms of attention and MLP, from their inputs
  bool layer = false;       // each layer from its input, with its collectives, as segments of the Program
  int first = 0;            // with `layer`: only as many layers, the first of each chunk; 0: all

  /// How many of a chunk's `layers` are recomputed from their inputs, and whether its layer `index` is.
  [[nodiscard]] int whole_layers(int layers) const {
    return !layer ? 0 : first == 0 ? layers : std::min(first, layers);
  }
  [[nodiscard]] bool whole(int index) const { return whole_layers(index + 1) > index; }
  bool operator==(const Recompute&) const = default;
};

/// Megatron-Core's module `layernorm`; only simulated.
inline constexpr Recompute kLayernorm{.norm = true};
/// The choices that run, by their names in scenarios. `selective` and `full`: Korthikanti et al., arXiv
/// 2205.05198, section 5. The sets of units: Table 9 of the paper. `block-N`, here one for any N: the method
/// `block` of Megatron-Core's full recomputation. `norm+activation`: PipeOffload, arXiv 2503.01328.
struct NamedRecompute {
  const char* name;
  Recompute choice;
};
inline constexpr NamedRecompute kRecomputes[] = {
    {"none", {}},
    {"selective", {.core = true}},
    {"full", {.layer = true}},
    {"block-1", {.layer = true, .first = 1}},
    {"norm+activation", {.activation = true, .norm = true}},
    {"mlp", {.mlp = true, .activation = true}},
    {"attn+mlp", {.core = true, .qkv = true, .mlp = true, .activation = true}},
    {"attn+mlp+norm", {.core = true, .qkv = true, .mlp = true, .activation = true, .norm = true}}};

/// The method, besides braids, that hides the collectives of tensor parallelism.
/// `megatron`, with sequence parallelism: overlap inside each unit, as Megatron-LM's --tp-comm-overlap with
/// Transformer Engine's defaults. Where a linear layer needs all rows (QKV and fc1 in F, proj and fc2 in I),
/// the ranks form a ring and pass rows on while the GEMM works on the rows it has (`ring exchange`). The
/// second linear layer of F makes its output in kPipelineSteps pieces of columns; each is reduce-scattered
/// while the next is made (`pipeline`), or with `ring_scatter` in pieces of one rank's rows: copy engines
/// send each there, and the receiver adds up at the end. In B the input gradient of QKV and fc1 overlaps the
/// gathering of their input, and their weight gradient overlaps the reduce-scatter of their input's gradient
/// (`bulk`). `domino`: halves of each microbatch, braided with each other (DeepSpeed, arXiv 2409.15241).
/// `flux`, with sequence parallelism: each GEMM is fused with the collective before or behind it (arXiv
/// 2406.06858). Only the cost model knows it; no backend runs it.
enum class TpOverlap : uint8_t { none, megatron, domino, flux };
inline constexpr int kPipelineSteps = 4;  // Transformer Engine's num_splits of the method `pipeline`

/// How the ranks that share a sequence attend to all of it. `ring`: keys and values pass from rank to rank
/// (Liu et al., Ring Attention, arXiv 2310.01889). `all_to_all`: before the core each rank gets all rows of
/// its share of the heads, and returns their output after the core (DeepSpeed-Ulysses, arXiv 2309.14509;
/// Transformer Engine's cp_comm_type a2a).
enum class CpMethod : uint8_t { ring, all_to_all };

/// What ranks exchange between ops of a unit; kExchanges (components.h) says how.
enum class Exchange : uint8_t {
  kv,            // keys and values for the next step of a ring's core
  kv_gradients,  // the sums of their gradients so far
  qkv,           // rows of all heads of q, k and v for all rows of some heads, or their gradients, or back
  output,        // the same of the attention's output, or of its gradient
  rows,          // a rank's latest rows, in place of an all-gather
};

/// An exchange beside the steps of a unit's core.
struct CoreExchange {
  Exchange what;
  int number;       // from 1
  int at, waiting;  // it is issued before step `at`, and step `waiting` waits for it; the number of steps
                    // stands for the part after the core, -1 for none
  bool again;       // it stands again where I runs F's core again
};

/// A set of the axes of a RankGrid.
struct Axes {
  bool tp = false, cp = false, dp = false, pp = false;

  [[nodiscard]] constexpr Axes without(const Axes& others) const {
    return {tp && !others.tp, cp && !others.cp, dp && !others.dp, pp && !others.pp};
  }
  auto operator<=>(const Axes&) const = default;  // NOLINT(modernize-use-nullptr): of clang-tidy 14
};
inline constexpr Axes kAllAxes{.tp = true, .cp = true, .dp = true, .pp = true};
/// Along these, ranks hold the same of every parameter, and gradients from other tokens.
inline constexpr Axes kReplicas{.cp = true, .dp = true};

/// The place of a world rank on the axes, as in Megatron-LM: tensor parallel varies fastest, then context,
/// data and pipeline parallel.
struct RankGrid {
  int tp = 1, cp = 1, dp = 1, pp = 1;

  struct Place {
    int tp, cp, dp, pp;
  };
  [[nodiscard]] int size() const { return tp * cp * dp * pp; }
  [[nodiscard]] int rank(const Place& place) const {
    return ((place.pp * dp + place.dp) * cp + place.cp) * tp + place.tp;
  }
  [[nodiscard]] Place place(int rank) const {
    return {rank % tp, rank / tp % cp, rank / (tp * cp) % dp, rank / (tp * cp * dp)};
  }

  /// The grid of ranks that differ only along `axes`, and a rank's index in it.
  [[nodiscard]] RankGrid along(const Axes& axes) const {
    return {axes.tp ? tp : 1, axes.cp ? cp : 1, axes.dp ? dp : 1, axes.pp ? pp : 1};
  }
  [[nodiscard]] int index(const Place& place, const Axes& axes) const {
    const RankGrid grid = along(axes);
    return grid.rank({place.tp % grid.tp, place.cp % grid.cp, place.dp % grid.dp, place.pp % grid.pp});
  }
  /// The ranks that differ from `rank` only along `axes`, `rank` included, in order.
  [[nodiscard]] std::vector<int> group(int rank, const Axes& axes) const {
    const RankGrid grid = along(axes);
    const int first = rank - this->rank(grid.place(index(place(rank), axes)));
    std::vector<int> members;
    for (int i = 0; i < grid.size(); ++i) members.push_back(first + this->rank(grid.place(i)));
    return members;
  }
};

struct Strategy {
  int tp = 1, cp = 1, dp = 1,
      pp = 1;  // ranks that share a layer's tensors, a sequence, the samples, the layers
  CpMethod cp_method = CpMethod::ring;
  bool sequence_parallel = false;  // reduce-scatters and all-gathers in place of all-reduces
  Recompute recompute;
  TpOverlap tp_overlap = TpOverlap::none;
  std::array<bool, 2> ring_scatter{};  // of attn's and mlp's second linear layer in F; only simulated
  double offload = 0;      // the largest share of an offloaded activation's bytes that the host holds
  int offload_chunks = 0;  // so many chunks' copies are planned (schedule/copy_plan.h); 0: they are not
  int offload_share = 2;   // of planned copies: pipeline ranks that share a link to the host
  double offload_round_trip = 0;  // of planned copies: both, over a chunk's F, I and W; 0: by their costs
  bool zero = false;              // ZeRO-1: replicas share the optimizer's state
  bool post_validation = false;   // the next step checks the gradients' norm

  /// The number of ranks that hold the same parameters.
  [[nodiscard]] int replicas() const { return grid().along(kReplicas).size(); }
  [[nodiscard]] RankGrid grid() const { return {.tp = tp, .cp = cp, .dp = dp, .pp = pp}; }
  [[nodiscard]] int world_size() const { return grid().size(); }
  /// The number of Program microbatches per microbatch: two with Domino.
  [[nodiscard]] int parts_of_microbatch() const { return tp_overlap == TpOverlap::domino ? 2 : 1; }

  /// Whether the core has all rows of some heads.
  [[nodiscard]] bool exchanges_heads() const { return cp > 1 && cp_method == CpMethod::all_to_all; }
  /// Whether keys and values pass from rank to rank.
  [[nodiscard]] bool in_ring() const { return cp > 1 && cp_method == CpMethod::ring; }
  /// Whether collectives overlap the steps of parts. A single rank has no collectives.
  [[nodiscard]] bool overlaps() const { return tp_overlap == TpOverlap::megatron && tp > 1; }
  /// Whether F and I of `unit` are divided into parts, and parts into steps.
  [[nodiscard]] bool divides(Unit unit) const;
  /// The number of steps of a part of F or I of a divided unit. A step of a ring's core has the keys of one
  /// of cp ranks, a step beside an exchange of rows has those of one of tp ranks.
  [[nodiscard]] int steps(Unit unit, UnitPass pass, UnitPart part) const;
  /// The exchanges before, between and after the steps of the core in F or I of a divided unit.
  [[nodiscard]] std::vector<CoreExchange> core_exchanges(Unit unit, UnitPass pass) const;

  /// The strategy without the options that add ops beside compute and its collectives.
  [[nodiscard]] Strategy of_compute() const {
    Strategy strategy = *this;
    strategy.offload = 0;
    strategy.zero = strategy.post_validation = false;
    return strategy;
  }
};

/// The numbers of ranks that divide a model, by their names in scenarios and records.
struct Axis {  // NOLINT(clang-analyzer-optin.performance.Padding): four rows, in reading order
  const char* name;
  int Strategy::*ranks;
  int most;
  const char* searched;  // what `stp tune` tries if it is not told, in words
  const char* limited;   // the limit of that, for messages; "": they do not tell it
  /// That limit, where a node has `node` GPUs.
  int (*limit)(const ModelConfig& model, int seq, int node);
  const char* megatron;  // Megatron-LM's argument; null: it follows from the others
  const char* adds;      // to what `stp tune` calls complicated; null: nothing
  bool always_named;     // names of tuned configurations have it even where it is 1
};
inline constexpr Axis kAxes[] = {
    {"tp", &Strategy::tp, 1 << 16, "Tensor-parallel ranks (default: within a node)", "up to %g",
     [](const ModelConfig&, int, int node) { return node; }, "tensor-model-parallel-size",
     "tensor parallelism", true},
    {"pp", &Strategy::pp, 4096, "Pipeline ranks (default: up to one a layer)", "up to the model's %g layers",
     [](const ModelConfig& model, int, int) { return model.layers; }, "pipeline-model-parallel-size",
     "pipeline", true},
    {"cp", &Strategy::cp, 1024, "Context-parallel ranks (default: at least 1024 tokens a rank)", "",
     [](const ModelConfig&, int seq, int) { return std::max(1, seq / 1024); }, "context-parallel-size",
     "context parallelism", false},
    {"dp", &Strategy::dp, 1 << 16, "Data-parallel replicas", "",
     [](const ModelConfig&, int, int) { return INT_MAX; }, nullptr, nullptr, true}};
/// kAxes in the order of names: "tp2 cp2 pp4 dp1".
inline constexpr const Axis* kAxesInNames[] = {&kAxes[0], &kAxes[2], &kAxes[1], &kAxes[3]};

}  // namespace stp

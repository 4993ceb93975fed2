// What each pass of each unit does on one tensor-parallel rank: GEMMs, attention, memory traffic, launches,
// saved tensors, and the bytes of its collective. Declared once, for the cost model and the kernels.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/saved.h"
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

/// One microbatch on one rank. With context parallelism a rank has 1/cp of each sequence's tokens, pieces r
/// and 2cp − 1 − r of 2cp, so that causal attention is as much work on each. With sequence parallelism (same
/// source, section 4.2.2) norms, dropout and residuals work on 1/tp of the tokens, and a reduce-scatter and
/// an all-gather, together of an all-reduce's volume, replace each all-reduce. Megatron-LM's second
/// all-gather, for the weight gradients, is hidden behind the input gradient's GEMM and is not counted; nor
/// is it where I recomputes a first linear layer from what it gathers: the second layer's input gradient goes
/// first.
struct Shape {
  int seq;
  int microbatch_size;
  int tp;
  bool sequence_parallel = false;
  Recompute recompute;
  int element_bytes = 2;   // of an activation: bf16
  int gradient_bytes = 4;  // of a parameter's gradient, as accumulated: fp32
  int cp = 1;              // divides seq, twice
  int vision_tokens = 0;   // of a sample, in the vision encoder
  TpOverlap tp_overlap = TpOverlap::none;
  CpMethod cp_method = CpMethod::ring;

  [[nodiscard]] Division division() const { return {cp, tp_overlap, tp, cp_method}; }
  /// Of one sample and of the microbatch, on this rank.
  [[nodiscard]] int own_seq() const { return seq / cp; }
  [[nodiscard]] double tokens() const { return double{1} * own_seq() * microbatch_size; }
};

/// How a unit is computed. `megatron`: norms, activations and residuals unfused, as the paper's figures
/// imply; `suite`: our own fused kernels, launched as the runtime does. The two differ in memory traffic,
/// launches and saved tensors, not in FLOPs. `megatron_2022`: Megatron-LM before FlashAttention, fp16: fused
/// kernels for norm, bias and GELU, bias, dropout and residual, mask and softmax; the core of the attention
/// as batched GEMMs that write and read all scores, masked or not.
enum class Implementation { megatron, suite, megatron_2022 };

/// Which of a linear layer's three GEMMs: they differ in which operands are transposed.
enum class GemmKind { forward, input_gradient, weight_gradient };

inline constexpr std::array kGemmKinds{GemmKind::forward, GemmKind::input_gradient,
                                       GemmKind::weight_gradient};
/// "forward", "input_gradient", "weight_gradient".
std::string to_string(GemmKind kind);

struct Gemm {
  double m, n, k;
  GemmKind kind = GemmKind::forward;
  bool operator==(const Gemm&) const = default;
  [[nodiscard]] double flops() const { return 2 * m * n * k; }
};

/// Of the linear layer whose forward is `forward` (m tokens, n outputs, k inputs): the GEMMs that compute the
/// gradients of its input and of its weights.
inline Gemm input_gradient(const Gemm& forward) {
  return {forward.m, forward.k, forward.n, GemmKind::input_gradient};
}
inline Gemm weight_gradient(const Gemm& forward) {
  return {forward.n, forward.k, forward.m, GemmKind::weight_gradient};
}

/// One call of a fused attention: `heads` heads (of all samples), each of `rows` queries against `columns`
/// keys of size `dim`. A causal one has as many rows as columns, and half of the pairs.
struct Attention {
  double heads, rows, columns, dim;
  bool causal, backward;

  /// Of a pair of query and key: two products; backward 2.5 times as many, since scores are recomputed.
  [[nodiscard]] double flops_per_pair() const { return (backward ? 2.5 : 1) * 2 * 2 * dim; }
  [[nodiscard]] double flops() const { return heads * rows * columns * flops_per_pair() / (causal ? 2 : 1); }
};

struct Work {
  std::vector<Gemm> gemms;
  std::vector<Attention> attentions;
  double replicated_bytes = 0;  // elementwise traffic that every rank of the group repeats (norms, residual);
                                // with sequence parallelism a rank's share of it
  double sharded_bytes = 0;     // traffic divided by tp (rotary, activation, loss; gradients of weights)
  int kernels = 0;              // launches; none of exchanges, or of sums of an output's pieces
};

Work work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
          UnitPass pass);
/// FLOPs of the fused attentions among it, of one direction.
double attention_flops(const Work& work, bool backward);

/// The same of a step of a part of F or I of a unit that shape.division() divides. A step of the attention's
/// core has n²/2 pairs of query and key per sample, n = own_seq(): the first all causal ones of the rank's
/// own tokens, any other all queries against one piece of another rank's keys, or the later half of the
/// queries against both. From the second on it merges its result into that of the steps before. With an
/// all-to-all there is one, of as much work. A step of another part has its share of the GEMM; the last has
/// all else. All parts add up to work(), but for the launches of each step that overlaps a collective; there
/// I also has F's steps where the core is recomputed. Not for `megatron_2022`.
Work unit_part_work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
                    UnitPass pass, UnitPart part, int step = 0);

/// Bytes of the keys and values of a rank's tokens, which an exchange of the ring carries.
double kv_bytes(const ModelConfig& model, const Shape& shape);

/// Bytes of q, k and v, or of the attention's output, of a rank's tokens, and of their gradients: all but
/// 1/cp of them leave the rank in an all-to-all.
double qkv_bytes(const ModelConfig& model, const Shape& shape);
double attention_output_bytes(const ModelConfig& model, const Shape& shape);

/// A tensor that the forward keeps for the backward, or that I makes.
struct SavedTensor {
  Saved which;
  double bytes;
  bool weight_gradient;   // kept on for W: an input of a linear, or (made by I) the gradient of its output
  bool made_by_forward;   // false: I makes it, for W or again
  bool early = false;     // whether W_early, not W_late, is its last use
  bool norm = false;      // whether the unit's norm makes it
  bool gradient = false;  // made by I from gradients: no recomputation

  /// Whether the forward drops it, and I makes it again.
  [[nodiscard]] bool recomputed() const { return !made_by_forward && !gradient; }
};

/// What one layer's unit (or the head) keeps per microbatch.
std::vector<SavedTensor> saved_tensors(const ModelConfig& model, const Shape& shape,
                                       Implementation implementation, Unit unit);

/// Memory traffic of an optimizer step per parameter.
double optimizer_bytes(Implementation implementation);

/// Bytes of the language model's hidden state, which a transfer to the next stage carries.
double hidden_bytes(const ModelConfig& model, const Shape& shape);

/// Bytes that the collective behind F or I of a unit carries: the unit's output, or its input's gradient. The
/// same without is_reduced(unit, pass).
double reduced_bytes(const ModelConfig& model, const Shape& shape, Unit unit, UnitPass pass);

/// Whether tp divides what it must; InputError naming tp otherwise.
void check_shardable(const ModelConfig& model, int tp);

/// Whether cp divides a rank's heads, where `division` exchanges them; InputError naming cp_method otherwise.
void check_exchanged_heads(const ModelConfig& model, int tp, const Division& division);

}  // namespace stp

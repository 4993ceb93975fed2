// What each pass of each unit does on one tensor-parallel rank: GEMMs, attention, memory traffic, launches,
// saved tensors, and the bytes of its collective. Declared once, for the cost model and the kernels.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/saved.h"
#include "stp/model/strategy.h"
#include "stp/model/unit.h"

namespace stp {

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
  Strategy strategy;       // cp divides seq, twice
  int element_bytes = 2;   // of an activation: bf16
  int gradient_bytes = 4;  // of a parameter's gradient, as accumulated: fp32
  int vision_tokens = 0;   // of a sample, in the vision encoder

  /// Of one sample and of the microbatch, on this rank.
  [[nodiscard]] int own_seq() const { return seq / strategy.cp; }
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

/// The same of a step of a part of F or I of a unit that shape.strategy.division() divides. A step of the
/// attention's core has n²/2 pairs of query and key per sample, n = own_seq(): the first all causal ones of
/// the rank's own tokens, any other all queries against one piece of another rank's keys, or the later half
/// of the queries against both. From the second on it merges its result into that of the steps before. With
/// an all-to-all there is one, of as much work. A step of another part has its share of the GEMM; the last
/// has all else. All parts add up to work(), but for the launches of each step that overlaps a collective;
/// there I also has F's steps where the core is recomputed. Not for `megatron_2022`.
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

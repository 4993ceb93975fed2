// The work of each pass of each unit on one tensor-parallel rank: GEMMs, attention, memory traffic, launches,
// saved tensors, and collective bytes. The cost model and the runtime follow it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/strategy.h"
#include "stp/model/unit.h"

namespace stp {

inline constexpr double kBf16 = 2, kFp32 = 4;  // bytes

/// One microbatch on one rank. With context parallelism a rank has pieces r and 2cp − 1 − r of each
/// sequence's 2cp pieces, so that all ranks have equal work in causal attention. With sequence parallelism
/// (arXiv 2205.05198, section 4.2.2) norms, dropout and residuals work on 1/tp of the tokens; a
/// reduce-scatter and an all-gather replace each all-reduce, with the same volume together. Megatron-LM's
/// second all-gather, for the weight gradients, is not counted: the input gradient's GEMM hides it. If I
/// recomputes a first linear layer from the gathered rows, the second layer's input gradient hides it.
struct Shape {
  int seq;
  int microbatch_size;
  Strategy strategy;               // cp divides seq into 2 · cp pieces
  int element_bytes = 2;           // of an activation: bf16
  int gradient_bytes = 4;          // of a parameter's accumulated gradient: fp32
  int vision_tokens = 0;           // per sample, in the vision encoder
  bool shares_vocabulary = false;  // each of strategy.pp ranks has a share of the head and of the embedding

  /// Tokens on this rank: of one sample; of the microbatch.
  [[nodiscard]] int own_seq() const { return seq / strategy.cp; }
  [[nodiscard]] double tokens() const { return double{1} * own_seq() * microbatch_size; }
  [[nodiscard]] int vocabulary_ranks() const { return shares_vocabulary ? strategy.pp : 1; }
};

/// How a unit is computed. `megatron`: unfused norms, activations and residuals, as the paper's figures
/// imply. `suite`: our fused kernels, launched as in the runtime. The two differ in memory traffic, launches
/// and saved tensors, not in FLOPs. `megatron_2022`: Megatron-LM before FlashAttention, fp16, with fused
/// kernels for norm; bias and GELU; bias, dropout and residual; mask and softmax. Its attention core is
/// batched GEMMs that write and read all scores, masked or not. `megatron_te`: Megatron-Core with Transformer
/// Engine up to 2.17, bf16: fused norms, rotary embedding, activation, residual and loss, cuDNN's attention
/// (MLM d98e8a64, TE v2.9: layernorm_linear.py, linear.py, backends.py, cross_entropy.py). From 2.18 the loss
/// keeps an fp32 gradient of the logits.
enum class Implementation { megatron, suite, megatron_2022, megatron_te, megatron_te_2_18 };
constexpr bool uses_transformer_engine(Implementation implementation) {
  return implementation == Implementation::megatron_te || implementation == Implementation::megatron_te_2_18;
}

/// One of a linear layer's three GEMMs. They differ in their transposed operands.
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

/// The GEMMs that compute the gradients of a linear layer's input and weights. `forward` is its forward, with
/// m tokens, n outputs and k inputs.
inline Gemm input_gradient(const Gemm& forward) {
  return {forward.m, forward.k, forward.n, GemmKind::input_gradient};
}
inline Gemm weight_gradient(const Gemm& forward) {
  return {forward.n, forward.k, forward.m, GemmKind::weight_gradient};
}

/// One call of a fused attention, over the heads of all samples. Each head has `rows` queries and `columns`
/// keys of size `dim`. A causal call has rows = columns, and half of the pairs.
struct Attention {
  double heads, rows, columns, dim;
  bool causal, backward;

  /// FLOPs per pair of query and key: two products; 2.5 times as many backward, which recomputes scores.
  [[nodiscard]] double flops_per_pair() const { return (backward ? 2.5 : 1) * 2 * 2 * dim; }
  [[nodiscard]] double flops() const { return heads * rows * columns * flops_per_pair() / (causal ? 2 : 1); }
};

struct Work {
  std::vector<Gemm> gemms;
  std::vector<Attention> attentions;
  double replicated_bytes = 0;  // elementwise traffic that every rank of the group repeats (norms, residual);
                                // with sequence parallelism, a rank's share of it
  double sharded_bytes = 0;     // traffic divided by tp (rotary, activation, loss; gradients of weights)
  int kernels = 0;              // launches, without exchanges and sums of pieces
};

Work work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
          UnitPass pass);
/// FLOPs of the fused attentions in `work`, of one direction.
double attention_flops(const Work& work, bool backward);

/// The work of one step of a part of F or I, of a unit that shape.strategy divides. A step of a
/// ring's core has n²/2 pairs of query and key per sample, n = own_seq(). The first step has the causal pairs
/// of the rank's own tokens. Any other has all queries and one piece of another rank's keys, or the later
/// half of the queries and both pieces; it also merges its result into the result so far. With an all-to-all
/// the core is one step with the work of all. A step of another part has its share of the GEMM; the last step
/// has everything else. The parts add up to work(), except launches: each step that overlaps a collective has
/// its own. Then I also has F's steps if the core is recomputed. Not for `megatron_2022`.
Work unit_part_work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
                    UnitPass pass, UnitPart part, int step = 0);

/// Whether the steps of a part, besides the core, have columns of the first GEMM's output; else its rows.
bool is_divided_by_columns(const Strategy& strategy, Unit unit, UnitPart part);

/// Bytes of a rank's tensor that an exchange sends; an all-to-all all but this rank's own share.
double exchange_bytes(const ModelConfig& model, const Shape& shape, Exchange exchange);

/// A tensor that a forward keeps for the backward, or that I makes for W. saved_tensors() lists those of
/// a unit. The runtime never makes those that only Megatron-LM's implementations have.
enum class Saved : uint8_t {
  patches,  // input of the embedding of patches
  // Of the norm.
  norm_input,
  norm_input_fp32,
  normalised_input,
  norm_statistics,
  dropout_mask,
  norm_output,
  // Of attention.
  qkv,
  query_key_norm_input,
  query_key_norm_statistics,
  attention_output,  // this rank's rows: the projection's input
  core_output,       // with an all-to-all: all rows of some heads
  log_sum_exp,
  softmax,
  softmax_mask,
  softmax_after_dropout,
  // Of the MLP and the merger.
  fc1_output,  // gate and up, if gated
  gate_fp32,
  activated_gate,
  activation,
  // Of the head.
  softmax_fp32,
  logits_gradient,
  // Made by I.
  inner_gradient,   // of the first linear layer's output: q, k and v, or fc1's
  output_gradient,  // of the unit's output
};
inline constexpr size_t kSavedTensors = static_cast<size_t>(Saved::output_gradient) + 1;
/// For messages: "norm input".
std::string to_string(Saved tensor);

/// Tensors of one unit and microbatch that pass between the ops of one pass, of kind `working`.
enum class Between : uint8_t {
  // With sequence parallelism: this rank's rows of the output's gradient, until the reduce-scatter; all rows
  // of the norm's output, for weight gradients and recomputation.
  residual,
  gathered,
  core_gradient,  // between parts: of the attention's output, or of the activation
  // With tp_overlap: all rows of the norm's output, if exchanges bring them; columns of the output, until
  // they are summed; this rank's rows of the output, while pieces are missing.
  ring,
  piece,
  output,
  // Of the head, until its loss: each token's largest logit and sum of exponentials, of this rank's group.
  // With one barrier also this rank's part of the targets' rows of the table.
  maximum,
  sums,
  target_rows,
};
inline constexpr size_t kBetween = static_cast<size_t>(Between::target_rows) + 1;
/// Tensors of the steps of a ring's core, by step, of kind `working` or `communication`: the step's keys and
/// values, their gradients by this step, and the sum of their gradients by earlier steps, which an exchange
/// brings.
enum class OfSteps : uint8_t { kv, kv_gradients, kv_sums };
inline constexpr size_t kOfSteps = static_cast<size_t>(OfSteps::kv_sums) + 1;

/// One of a unit's tensors that the forward keeps, or that I makes.
struct SavedTensor {
  Saved which;
  double bytes;
  bool weight_gradient;   // kept until W: an input of a linear, or (made by I) the gradient of its output
  bool made_by_forward;   // false: I makes it, for W or again
  bool early = false;     // W_early, not W_late, uses it last
  bool norm = false;      // the unit's norm makes it
  bool gradient = false;  // I makes it from gradients, not by recomputation

  /// Whether the forward drops it and I makes it again.
  [[nodiscard]] bool recomputed() const { return !made_by_forward && !gradient; }
};

/// The tensors that one layer's unit, or another unit, saves per microbatch.
std::vector<SavedTensor> saved_tensors(const ModelConfig& model, const Shape& shape,
                                       Implementation implementation, Unit unit);

/// Bytes of memory traffic of an optimizer step, per parameter whose state a rank has. `copied`: the gradient
/// is copied to fp32 before; else it is read in its own type.
double optimizer_bytes(Implementation implementation, int gradient_bytes = 4, bool copied = false);

/// Bytes of the language model's hidden state: one transfer to the next stage.
double hidden_bytes(const ModelConfig& model, const Shape& shape);

/// Bytes of the collective after F or I of a unit: the unit's output, or its input's gradient. Valid also if
/// is_reduced(unit, pass) is false.
double reduced_bytes(const ModelConfig& model, const Shape& shape, Unit unit, UnitPass pass);

/// Throws InputError about tp if it does not divide the model's heads, columns and vocabulary.
void check_shardable(const ModelConfig& model, int tp);

/// Throws InputError about pp if the vocabulary cannot be divided over tp · ranks.
void check_shared_vocabulary(const ModelConfig& model, int tp, int ranks);

/// Throws InputError about seq, vision_tokens, cp or cp_method if samples of `seq` tokens have more than the
/// model's learned positions, an image's tokens do not merge into whole tokens, at most `seq`, or cp does not
/// divide the tokens or, where heads are exchanged, a rank's heads.
void check_divisible(const ModelConfig& model, const Strategy& strategy, int seq, int vision_tokens);

}  // namespace stp

#include "stp/model/work.h"

#include "stp/base/error.h"

namespace stp {
namespace {

constexpr double kBf16 = 2, kFp32 = 4;  // bytes

// Per-rank widths of a layer, and the bytes of one bf16 tensor of that width.
struct Widths {
  double tokens, hidden, q, kv, ffn, vocab;

  Widths(const ModelConfig& model, const Shape& shape)
      : tokens(shape.tokens()),
        hidden(model.hidden),
        q(double{1} * model.q_heads * model.head_dim / shape.tp),
        kv(double{1} * model.kv_heads * model.head_dim / shape.tp),
        ffn(double{1} * model.ffn / shape.tp),
        vocab(double{1} * model.vocab / shape.tp) {}

  [[nodiscard]] double bytes(double width) const { return tokens * width * kBf16; }
};

// Elementwise traffic of one unit, in reads and writes of whole bf16 tensors (an fp32 tensor counts twice).
// Unfused, counted over PyTorch's ops: RMSNorm forward casts up (3), squares (4), averages (2), scales (4),
// casts down (3), weighs (2); its backward goes the same way with two operands. The residual: divide by t
// (2), add (3).
struct Traffic {
  double norm_forward, norm_backward;              // of hidden
  double residual_forward, residual_backward;      // of hidden
  double rotary;                                   // of q and k, each direction
  double bias;                                     // of q, k and v, each direction
  double activation_forward, activation_backward;  // of ffn
};

constexpr Traffic traffic(Implementation implementation) {
  if (implementation == Implementation::megatron) return {18, 30, 5, 3, 2, 0, 3, 5};
  return {2, 3, 1, 1,
          2, 0, 3, 5};  // each fused into one kernel, the bias and the residual into the GEMM's epilogue
}

// The weight gradient of a linear layer, added in fp32 to what earlier microbatches left: read and written once
// by the product's epilogue (Megatron-LM's fused accumulation; what a bf16 result would write is in the
// product's own cost).
Work weight_gradients(const std::vector<Gemm>& forwards) {
  Work work;
  for (const Gemm& forward : forwards) {
    work.gemms.push_back(weight_gradient(forward));
    work.sharded_bytes += 2 * kFp32 * forward.n * forward.k;
    ++work.kernels;
  }
  return work;
}

Work attention_work(const ModelConfig& model, const Shape& shape, const Traffic& t, UnitPass pass) {
  const Widths w(model, shape);
  const Gemm qkv{w.tokens, w.q + 2 * w.kv, w.hidden}, proj{w.tokens, w.hidden, w.q};
  const double scores = 2 * 2 * w.tokens * shape.seq * w.q / 2;  // QKᵀ and PV, lower triangle
  const double rotary_and_bias = t.rotary * w.bytes(w.q + w.kv) + t.bias * w.bytes(w.q + 2 * w.kv);
  switch (pass) {
    case UnitPass::F:
      return {.gemms = {qkv, proj},
              .attention_forward_flops = scores,
              .replicated_bytes = (t.norm_forward + t.residual_forward) * w.bytes(w.hidden),
              .sharded_bytes = rotary_and_bias,
              .kernels = 16};
    case UnitPass::I:
      return {.gemms = {input_gradient(qkv), input_gradient(proj)},
              .attention_backward_flops = 2.5 * scores,
              .replicated_bytes = (t.norm_backward + t.residual_backward) * w.bytes(w.hidden),
              .sharded_bytes = rotary_and_bias,
              .kernels = 24};
    case UnitPass::W_early:
      return weight_gradients({proj});
    case UnitPass::W_late:
      return weight_gradients({qkv});
  }
  return {};
}

Work mlp_work(const ModelConfig& model, const Shape& shape, const Traffic& t, UnitPass pass) {
  const Widths w(model, shape);
  const Gemm fc1{w.tokens, 2 * w.ffn, w.hidden}, fc2{w.tokens, w.hidden, w.ffn};
  switch (pass) {
    case UnitPass::F:
      return {.gemms = {fc1, fc2},
              .replicated_bytes = (t.norm_forward + t.residual_forward) * w.bytes(w.hidden),
              .sharded_bytes = t.activation_forward * w.bytes(w.ffn),
              .kernels = 12};
    case UnitPass::I:
      return {.gemms = {input_gradient(fc1), input_gradient(fc2)},
              .replicated_bytes = (t.norm_backward + t.residual_backward) * w.bytes(w.hidden),
              .sharded_bytes = t.activation_backward * w.bytes(w.ffn),
              .kernels = 18};
    case UnitPass::W_early:
      return weight_gradients({fc2});
    case UnitPass::W_late:
      return weight_gradients({fc1});
  }
  return {};
}

// The last norm, the projection onto the vocabulary, and the cross-entropy in fp32: cast up, maximum,
// exponential, sum; backward softmax minus one-hot, cast down.
Work head_work(const ModelConfig& model, const Shape& shape, const Traffic& t, UnitPass pass) {
  const Widths w(model, shape);
  const Gemm projection{w.tokens, w.vocab, w.hidden};
  switch (pass) {
    case UnitPass::F:
      return {.gemms = {projection},
              .replicated_bytes = t.norm_forward * w.bytes(w.hidden),
              .sharded_bytes = 11 * w.bytes(w.vocab),
              .kernels = 16};
    case UnitPass::I:
      return {.gemms = {input_gradient(projection)},
              .replicated_bytes = t.norm_backward * w.bytes(w.hidden),
              .sharded_bytes = 6 * w.bytes(w.vocab),
              .kernels = 16};
    case UnitPass::W_early:
      return {};
    case UnitPass::W_late:
      return weight_gradients({projection});
  }
  return {};
}

}  // namespace

Work work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
          UnitPass pass) {
  const Traffic t = traffic(implementation);
  switch (unit) {
    case Unit::attn:
      return attention_work(model, shape, t, pass);
    case Unit::mlp:
      return mlp_work(model, shape, t, pass);
    case Unit::head:
      return head_work(model, shape, t, pass);
  }
  return {};
}

std::vector<SavedTensor> saved_tensors(const ModelConfig& model, const Shape& shape,
                                       Implementation implementation, Unit unit) {
  const Widths w(model, shape);
  const bool fused = implementation == Implementation::suite;
  std::vector<SavedTensor> tensors;
  const auto keep = [&](const char* name, double width, bool for_weights = false) {
    tensors.push_back({name, w.bytes(width), for_weights, true});
  };
  const auto make_for_weights = [&](const char* name, double width) {
    tensors.push_back({name, w.bytes(width), true, false});
  };
  // The norm keeps its input once when fused; unfused autograd keeps an fp32 copy and the scaled tensor, and
  // Megatron-LM's default dropout a mask of one byte per element.
  if (fused) {
    keep("norm input", w.hidden);
  } else {
    keep("norm input in fp32", kFp32 / kBf16 * w.hidden);
    keep("normalised input", w.hidden);
    if (unit != Unit::head) keep("dropout mask", 0.5 * w.hidden);
  }
  keep("norm output", w.hidden, true);
  switch (unit) {
    case Unit::attn:
      keep("q, k, v", w.q + 2 * w.kv);
      keep("attention output", w.q, true);
      keep("log-sum-exp", double{1} * model.q_heads / shape.tp * kFp32 / kBf16);
      make_for_weights("gradient of q, k, v", w.q + 2 * w.kv);
      make_for_weights("gradient of the output", w.hidden);
      break;
    case Unit::mlp:
      keep("gate and up", 2 * w.ffn);
      if (!fused) {
        keep("gate in fp32", kFp32 / kBf16 * w.ffn);
        keep("activated gate", w.ffn);
      }
      keep("activation", w.ffn, true);
      make_for_weights("gradient of gate and up", 2 * w.ffn);
      make_for_weights("gradient of the output", w.hidden);
      break;
    case Unit::head:
      keep("softmax in fp32", kFp32 / kBf16 * w.vocab);
      make_for_weights("gradient of the logits", w.vocab);
      break;
  }
  return tensors;
}

double hidden_bytes(const ModelConfig& model, const Shape& shape) {
  return Widths(model, shape).bytes(model.hidden);
}

void check_shardable(const ModelConfig& model, int tp) {
  const auto check = [&](const char* what, int size) {
    if (size % tp != 0)
      throw InputError("", "parallel.tp",
                       std::to_string(tp) + " does not divide the " + std::to_string(size) + " " + what +
                           " of " + model.name,
                       "use a divisor");
  };
  check("attention heads", model.q_heads);
  check("key and value heads", model.kv_heads);
  check("feed-forward columns", model.ffn);
  check("vocabulary entries", model.vocab);
}

}  // namespace stp

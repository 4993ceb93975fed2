#include <iterator>

#include "stp/model/components.h"

namespace stp {
namespace {

struct OfImplementations {
  Elementwise megatron, suite, megatron_2022, megatron_te;
};

// By ComponentKind; of a language model, gated. `megatron` is counted over PyTorch's operators. RMSNorm casts
// up (3), squares (4), averages (2), scales (4), casts down (3), weighs (2); its backward has the same steps
// with two operands. The residual: divide by t (2), add (3). `megatron_2022`: LayerNorm reads and writes; its
// backward reads the gradient and the input, writes, and reads both again for scale and shift. Bias, dropout
// and residual read two, write one and a mask of one byte; backward the mask and the gradient make the
// sublayer's gradient (2.5), which is summed for the bias (1), and the residual's gradient is added (3).
// Both: the activation reads gate and up, writes; backward reads three, writes two. The loss, in fp32: cast
// up, maximum, exponential, sum; backward softmax minus one-hot, cast down. The suite has each in one kernel;
// the residual is scaled into the output (2), to which the GEMM adds (1). Its launches are its calls of
// Kernels (lib/stp/device/kernels.h) on the rank of a group that makes most of them. `megatron_te`: the norm
// reads and writes; its backward reads the gradient and the input and writes, in two kernels, and two small
// ones add the gain's gradient. q (with grouped queries) and v are copied to be contiguous, and rotary makes
// new q and k; backward the gradients of q, k and v are joined. The loss of Triton reads the logits twice and
// writes their gradient in their place; backward multiplies it by the loss's weight.
constexpr Elementwise kGemm{0, 0, 1, 1};
constexpr OfImplementations kElementwise[] = {
    {{18, 30, 6, 12}, {2, 3, 1, 1}, {2, 5, 6, 12}, {2, 3, 1, 4}},  // norm
    {kGemm, kGemm, kGemm, kGemm},                                  // linear
    {{}, {}, {2, 3}, {0, 2, 0, 1}},                                // split, elsewhere launched by rotary
    {{18, 30, 6, 12}, {6, 7, 6, 6}, {2, 5, 2, 4}, {2, 3, 2, 4}},   // norms of q and k
    {{2, 2, 5}, {2, 2, 1, 1}, {2, 2, 5}, {4, 2, 4, 2}},            // rotary
    {},                                                            // core: core_of() below
    {{0, 0, 0, 6}, {}, {2, 2, 0, 6}, {}},                          // join, launches rotary's backward
    {{3, 5, 2, 2}, {3, 5, 1, 1}, {3, 5 + 1, 2, 2}, {3, 5, 1, 1}},  // activation, in 2022 sums for the bias
    {{5, 3, 2, 2}, {3, 1, 1, 0}, {3.5, 6.5, 2, 2}, {3, 3, 1, 1}},  // residual
    {{11, 6, 9, 3}, {11, 6, 4, 0}, {11, 6, 9, 3}, {3, 2, 2, 1}},   // loss
    {{3, 0, 4, 6}, {3, 0, 1, 1}, {3, 0, 4, 6}, {3, 0, 4, 6}}};     // lookup
static_assert(std::size(kElementwise) == kComponentKinds);

const Elementwise& of(const OfImplementations& all, Implementation implementation) {
  switch (implementation) {
    case Implementation::megatron:
      return all.megatron;
    case Implementation::suite:
      return all.suite;
    case Implementation::megatron_2022:
      return all.megatron_2022;
    case Implementation::megatron_te:
    case Implementation::megatron_te_2_18:
      return all.megatron_te;
  }
  return all.megatron;
}

}  // namespace

// An encoder's norm is a LayerNorm, one kernel of PyTorch, and its biases' gradients
// are sums.
Elementwise elementwise(const ModelConfig& model, Implementation implementation, ComponentKind kind) {
  const bool suite = implementation == Implementation::suite,
             unfused = implementation == Implementation::megatron;
  Elementwise each = of(kElementwise[static_cast<size_t>(kind)], implementation);
  const bool activation = kind == ComponentKind::activation, encoder = model.family == Family::vit;
  if (kind == ComponentKind::query_key_norm && !model.variant.query_key_norm) return {};
  if (activation && !model.gated()) {
    each.forward -= 1;
    each.backward -= 2;
  }
  if (kind == ComponentKind::rotary && !model.rotary()) {
    if (suite) return {};
    each.forward = each.backward = 0;
  }
  if (uses_transformer_engine(implementation)) {
    if (kind == ComponentKind::rotary && !model.rotary()) return {};  // attention reads q, k and v in place
    if (kind == ComponentKind::rotary && model.q_heads == model.kv_heads)
      each.forward -= 1, each.forward_kernels -= 1;  // q needs no copy
    if (kind == ComponentKind::loss && implementation == Implementation::megatron_te_2_18)
      each.forward += 1, each.backward += 1.5;  // the gradient is fp32
  }
  if (!encoder || !unfused) return each;
  if (kind == ComponentKind::norm)
    each = {2, 5, each.forward_kernels, each.backward_kernels};
  else if (activation || kind == ComponentKind::split || kind == ComponentKind::residual)
    each.backward += 1;
  return each;
}

}  // namespace stp

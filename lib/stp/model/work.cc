#include "stp/model/work.h"

#include <algorithm>

#include "stp/base/error.h"

namespace stp {
namespace {

constexpr double kFp32 = 4;  // bytes

// Per-rank widths of a layer, and the bytes of a tensor of such a width.
struct Widths {
  double tokens, hidden, q, kv, ffn, vocab, element;
  double norm;  // what norms, dropout and residuals see of `hidden`, averaged over the tokens

  Widths(const ModelConfig& model, const Shape& shape)
      : tokens(shape.tokens()),
        hidden(model.hidden),
        q(double{1} * model.q_heads * model.head_dim / shape.tp),
        kv(double{1} * model.kv_heads * model.head_dim / shape.tp),
        ffn(double{1} * model.ffn / shape.tp),
        vocab(double{1} * model.vocab / shape.tp),
        element(shape.element_bytes),
        norm(shape.sequence_parallel ? hidden / shape.tp : hidden) {}

  [[nodiscard]] double bytes(double width) const { return tokens * width * element; }
  // The attention's linear layers.
  [[nodiscard]] Gemm qkv() const { return {tokens, q + 2 * kv, hidden}; }
  [[nodiscard]] Gemm projection() const { return {tokens, hidden, q}; }
  // The MLP's.
  [[nodiscard]] Gemm fc1(const ModelConfig& model) const {
    return {tokens, (model.gated() ? 2 : 1) * ffn, hidden};
  }
  [[nodiscard]] Gemm fc2() const { return {tokens, hidden, ffn}; }
};

// Launches of a pass or of what a pass consists of, unfused. The suite's own are its calls of Kernels
// (lib/stp/device/kernels.h) on the rank of a group that makes most of them.
struct Launches {
  // Of F, and of what I recomputes of it: QKV and what follows it; what follows fc1; the second linear layer.
  int norm = 6, qkv = 6, activation = 2, second = 1, residual = 2;
  // Of I, before and behind the core.
  int attn_before = 7, attn_after = 15, mlp_core = 2, mlp_after = 15;
  int core_backward = 2;
  // Of a ring: to merge a step's results; to copy gradients of k and v, in I's first step and behind its
  // last.
  int merging = 2, copy = 0;
  int piece = 1;               // of a step of F's `after`
  int qkv_bias = 0, bias = 0;  // sums for the gradients of QKV's bias and of others, beside the weights'
  int head_F = 16, head_I = 16, embedding_F = 4, embedding_W = 6, merger_F = 10, merger_I = 16;
};

Launches launches(const ModelConfig& model, Implementation implementation) {
  if (implementation != Implementation::suite) return {};
  const int bias = model.family == Family::vit ? 1 : 0;  // a kernel of its own
  return {.norm = 1,
          .qkv = 2,
          .activation = 1 + bias,
          .second = 1 + bias,
          .residual = 1,
          .attn_before = 1,
          .attn_after = 3,
          .mlp_core = 1,
          .mlp_after = 2,
          .core_backward = 1,
          .merging = 0,
          .copy = 1,
          .piece = 3,
          .qkv_bias = 1,
          .bias = bias,
          .head_F = 6,
          .head_I = 2,
          .embedding_F = 1,
          .embedding_W = 1,
          .merger_F = 6,
          .merger_I = 4};
}

// Elementwise traffic of one unit, in reads and writes of whole bf16 tensors (an fp32 tensor counts twice).
// Unfused, counted over PyTorch's ops: RMSNorm forward casts up (3), squares (4), averages (2), scales (4),
// casts down (3), weighs (2); its backward has the same steps with two operands. The residual: divide by t
// (2), add (3). Fused: LayerNorm reads and writes; its backward reads the gradient and the input, writes, and
// reads both again for scale and shift. Bias, dropout and residual read two, write one and a mask of one
// byte; backward the mask and the gradient make the sublayer's gradient (2.5), which is summed for the bias
// (1), and the residual's gradient is added (3).
struct Traffic {
  double norm_forward, norm_backward;          // of hidden
  double residual_forward, residual_backward;  // of hidden
  double rotary;                               // of q and k, each direction
  double qkv_forward, qkv_backward;            // of q, k and v: biases, splitting and joining
  double context;                              // of the attention's output: its transposition, each direction
  double activation_forward, activation_backward;  // of ffn
  Launches launches = {};
};

Traffic elementwise(const ModelConfig& model, Implementation implementation) {
  const double rotary = model.rotary() ? 2 : 0;
  // Gated: reads gate and up, writes; backward reads three, writes two.
  const double activation_forward = model.gated() ? 3 : 2, activation_backward = model.gated() ? 5 : 3;
  switch (implementation) {
    case Implementation::megatron: {
      if (model.family != Family::vit)
        return {18, 30, 5, 3, rotary, 0, 0, 0, activation_forward, activation_backward};
      // LayerNorm, unlike RMSNorm, is one kernel of PyTorch; and sums for the biases' gradients.
      return {2, 5, 5, 3 + 1, rotary, 0, 1, 0, activation_forward, activation_backward + 1};
    }
    case Implementation::suite:  // each in one kernel, the bias and the residual in the GEMM's epilogue
      return {2, 3, 1, 1, rotary, 0, 0, 0, activation_forward, activation_backward};
    case Implementation::megatron_2022:  // and the sums for the biases' gradients
      return {2, 5, 3.5, 6.5, rotary, 2, 3, 2, activation_forward, activation_backward + 1};
  }
  return {};
}
Traffic traffic(const ModelConfig& model, Implementation implementation) {
  Traffic traffic = elementwise(model, implementation);
  traffic.launches = launches(model, implementation);
  return traffic;
}

// The weight gradient of a linear layer, accumulated over the microbatches: read and written once by
// the GEMM's epilogue (Megatron-LM's fused accumulation; writing a bf16 result is part of the GEMM's own
// cost). `sums`: launches for its bias.
Work weight_gradients(const Shape& shape, const Gemm& forward, int sums = 0) {
  return {.gemms = {weight_gradient(forward)},
          .sharded_bytes = 2.0 * shape.gradient_bytes * forward.n * forward.k,
          .kernels = 1 + sums};
}

void add(Work& to, const Work& more) {
  to.gemms.insert(to.gemms.end(), more.gemms.begin(), more.gemms.end());
  to.attentions.insert(to.attentions.end(), more.attentions.begin(), more.attentions.end());
  to.replicated_bytes += more.replicated_bytes;
  to.sharded_bytes += more.sharded_bytes;
  to.kernels += more.kernels;
}

// Between the attention's two linear layers: of a ring one step, without merging. From the second step on it
// is all of a rank's queries against one piece of another rank's keys; the later half of the queries against
// both pieces is as much.
Work attention_core(const ModelConfig& model, const Shape& shape, Implementation implementation, bool forward,
                    int step = 0) {
  const Widths w(model, shape);
  if (implementation != Implementation::megatron_2022) {
    const bool by_heads = shape.division().exchanges_heads(), causal = model.causal() && step == 0;
    const double rows = by_heads ? shape.seq : shape.own_seq();
    const double heads = w.q / model.head_dim * shape.microbatch_size / (by_heads ? shape.cp : 1);
    return {.attentions = {{heads, rows, step == 0 ? rows : rows / 2, double{1} * model.head_dim, causal,
                            !forward}},
            .kernels = forward ? 1 : launches(model, implementation).core_backward};
  }
  // Batched GEMMs over the heads of this rank: QKᵀ, PV; backward dP, dV, dQ and dK. Per score and in bf16
  // tensors: the fused softmax reads what the mask leaves (a half) and writes all, dropout reads, writes and
  // writes a mask of one byte; backward dropout reads gradient and mask and writes, softmax reads the halves
  // of gradient and output and writes all.
  const double rows = w.tokens * model.q_heads / shape.tp, dim = model.head_dim, seq = shape.seq;
  const Gemm scores{rows, seq, dim}, values{rows, dim, seq};
  const double of_scores = w.bytes(double{1} * model.q_heads / shape.tp * seq);
  if (forward) return {.gemms = {scores, values}, .sharded_bytes = (1.5 + 2.5) * of_scores, .kernels = 4};
  return {.gemms = {scores, values, values, values}, .sharded_bytes = (2.5 + 2) * of_scores, .kernels = 6};
}

// A unit's forward in parts, of which I recomputes some: the norm; the first linear layer and what follows
// it; the second linear layer and what precedes it; the residual. The attention's core is apart. Each linear
// layer's GEMM is its part's only one.
struct ForwardParts {
  Work norm, first, second, residual;

  ForwardParts(const Widths& w, const Traffic& t)
      : norm{.replicated_bytes = t.norm_forward * w.bytes(w.norm), .kernels = t.launches.norm},
        residual{.replicated_bytes = t.residual_forward * w.bytes(w.norm), .kernels = t.launches.residual} {}

  [[nodiscard]] Work all() const {
    Work work = norm;
    for (const Work& part : {first, second, residual}) add(work, part);
    return work;
  }
  // A checkpoint of autograd runs the whole unit again, the second linear layer for nothing; the suite runs
  // what it needs. Neither has an all-reduce.
  void add_recomputed(Work& to, const Recompute& recompute, Unit unit, Implementation implementation) const {
    if (recompute.norm_of(unit)) add(to, norm);
    if (!recompute.first_linear(unit)) return;
    add(to, first);
    if (implementation != Implementation::suite) add(to, second);
  }
};

// A step's elementwise traffic with context parallelism: the output, or the gradients of q, k and v, are
// added to those of the steps before: read both, write.
Work merging(const ModelConfig& model, const Shape& shape, Implementation implementation, bool forward) {
  const Widths w(model, shape);
  return {.sharded_bytes = 3 * w.bytes(forward ? w.q : w.q + 2 * w.kv),
          .kernels = launches(model, implementation).merging};
}
// A ring's copies in I of gradients of k and v.
int ring_copies(const ModelConfig& model, const Shape& shape, Implementation implementation) {
  return shape.division().in_ring() ? launches(model, implementation).copy : 0;
}

ForwardParts attention_forward_parts(const Widths& w, const Traffic& t) {
  ForwardParts forward(w, t);
  forward.first = {.gemms = {w.qkv()},
                   .sharded_bytes = t.rotary * w.bytes(w.q + w.kv) + t.qkv_forward * w.bytes(w.q + 2 * w.kv),
                   .kernels = t.launches.qkv};
  forward.second = {
      .gemms = {w.projection()}, .sharded_bytes = t.context * w.bytes(w.q), .kernels = t.launches.second};
  return forward;
}

Work attention_work(const ModelConfig& model, const Shape& shape, Implementation implementation,
                    const Traffic& t, UnitPass pass) {
  const Widths w(model, shape);
  const Gemm qkv = w.qkv(), proj = w.projection();
  const double rotary = t.rotary * w.bytes(w.q + w.kv), qkv_bytes = w.bytes(w.q + 2 * w.kv),
               context = t.context * w.bytes(w.q);
  const auto core = [&](bool forward) {
    Work steps = attention_core(model, shape, implementation, forward);
    const int count = shape.division().steps(Unit::attn, pass, UnitPart::core);
    for (int step = 1; step < count; ++step) {
      add(steps, attention_core(model, shape, implementation, forward, step));
      add(steps, merging(model, shape, implementation, forward));
    }
    return steps;
  };
  const ForwardParts forward = attention_forward_parts(w, t);
  Work work;
  switch (pass) {
    case UnitPass::F:
      work = forward.all();
      add(work, core(true));
      return work;
    case UnitPass::I:
      work = {.gemms = {input_gradient(qkv), input_gradient(proj)},
              .replicated_bytes = (t.norm_backward + t.residual_backward) * w.bytes(w.norm),
              .sharded_bytes = rotary + t.qkv_backward * qkv_bytes + context,
              .kernels = t.launches.attn_before + t.launches.attn_after +
                         2 * ring_copies(model, shape, implementation)};
      add(work, core(false));
      if (shape.recompute.core) add(work, core(true));
      forward.add_recomputed(work, shape.recompute, Unit::attn, implementation);
      return work;
    case UnitPass::W_early:
      return weight_gradients(shape, proj, t.launches.bias);
    case UnitPass::W_late:
      return weight_gradients(shape, qkv, t.launches.qkv_bias);
  }
  return {};
}

ForwardParts mlp_forward_parts(const ModelConfig& model, const Widths& w, const Traffic& t) {
  ForwardParts forward(w, t);
  forward.first = {.gemms = {w.fc1(model)},
                   .sharded_bytes = t.activation_forward * w.bytes(w.ffn),
                   .kernels = 1 + t.launches.activation};
  forward.second = {.gemms = {w.fc2()}, .kernels = t.launches.second};
  return forward;
}

Work mlp_work(const ModelConfig& model, const Shape& shape, Implementation implementation, const Traffic& t,
              UnitPass pass) {
  const Widths w(model, shape);
  const Gemm fc1 = w.fc1(model), fc2 = w.fc2();
  const ForwardParts forward = mlp_forward_parts(model, w, t);
  Work work;
  switch (pass) {
    case UnitPass::F:
      return forward.all();
    case UnitPass::I:
      work = {.gemms = {input_gradient(fc1), input_gradient(fc2)},
              .replicated_bytes = (t.norm_backward + t.residual_backward) * w.bytes(w.norm),
              .sharded_bytes = t.activation_backward * w.bytes(w.ffn),
              .kernels = 1 + t.launches.mlp_core + t.launches.mlp_after};
      forward.add_recomputed(work, shape.recompute, Unit::mlp, implementation);
      return work;
    case UnitPass::W_early:
      return weight_gradients(shape, fc2, t.launches.bias);
    case UnitPass::W_late:
      return weight_gradients(shape, fc1, t.launches.bias);
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
              .replicated_bytes = t.norm_forward * w.bytes(w.norm),
              .sharded_bytes = 11 * w.bytes(w.vocab),
              .kernels = t.launches.head_F};
    case UnitPass::I:
      return {.gemms = {input_gradient(projection)},
              .replicated_bytes = t.norm_backward * w.bytes(w.norm),
              .sharded_bytes = 6 * w.bytes(w.vocab),
              .kernels = t.launches.head_I};
    case UnitPass::W_early:
      return {};
    case UnitPass::W_late:
      return weight_gradients(shape, projection);
  }
  return {};
}

// Every rank looks up the tokens of its share of the vocabulary and masks the rest; so does the gradient.
// Autograd makes the full gradient in half precision, zeroed (2 bytes a weight), and adds it to the fp32 one
// (10), for each microbatch, whatever its tokens. Fused, only the rows that occur are touched. Behind a
// vision encoder the suite copies the images of each sample, and their gradients.
Work embedding_work(const ModelConfig& model, const Shape& shape, Implementation implementation,
                    UnitPass pass) {
  const Widths w(model, shape);
  const bool fused = implementation == Implementation::suite;
  const Launches l = launches(model, implementation);
  const int images = fused && model.has_vision() ? shape.microbatch_size : 0;
  if (pass == UnitPass::F) return {.sharded_bytes = 3 * w.bytes(w.hidden), .kernels = l.embedding_F + images};
  if (pass != UnitPass::W_late) return {};
  const double read = w.bytes(w.hidden);
  if (fused)
    return {.sharded_bytes = read + (2 * shape.gradient_bytes) * w.tokens * w.hidden / shape.tp,
            .kernels = l.embedding_W + images};
  return {.sharded_bytes = 2 * read + (2 * w.element + 2 * shape.gradient_bytes) * w.vocab * w.hidden,
          .kernels = l.embedding_W};
}

// What a layer of the encoder computes on, as if it were a model of its own.
Shape vision_shape(const Shape& shape) {
  Shape encoder = shape;
  encoder.seq = shape.vision_tokens;
  return encoder;
}

// The merger: LayerNorm of the encoder's tokens, then, per kTokensMerged of them, two linear layers with GELU
// between.
struct Merger {
  ModelConfig encoder;
  Widths in;      // of the encoder's tokens
  double tokens;  // of the language model
  double merged;  // width of what is merged into one
  Gemm fc1, fc2;

  Merger(const ModelConfig& model, const Shape& shape)
      : encoder(model.encoder()),
        in(encoder, vision_shape(shape)),
        tokens(in.tokens / kTokensMerged),
        merged(kTokensMerged * in.hidden),
        fc1{tokens, merged / shape.tp, merged},
        fc2{tokens, double{1} * model.hidden, merged / shape.tp} {}
  [[nodiscard]] double inner_bytes() const { return tokens * fc1.n * in.element; }
};

Work merger_work(const ModelConfig& model, const Shape& shape, Implementation implementation, UnitPass pass) {
  const Merger m(model, shape);
  const Traffic t = traffic(m.encoder, implementation);
  switch (pass) {
    case UnitPass::F:
      return {.gemms = {m.fc1, m.fc2},
              .replicated_bytes = t.norm_forward * m.in.bytes(m.in.hidden),
              .sharded_bytes = t.activation_forward * m.inner_bytes(),
              .kernels = t.launches.merger_F};
    case UnitPass::I:
      return {.gemms = {input_gradient(m.fc1), input_gradient(m.fc2)},
              .replicated_bytes = t.norm_backward * m.in.bytes(m.in.hidden),
              .sharded_bytes = t.activation_backward * m.inner_bytes(),
              .kernels = t.launches.merger_I};
    case UnitPass::W_early:
      return weight_gradients(shape, m.fc2, t.launches.bias);
    case UnitPass::W_late:
      return weight_gradients(shape, m.fc1, t.launches.bias);
  }
  return {};
}

// A model without a vision encoder has no such work.
Work vision_work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
                 UnitPass pass) {
  if (!model.has_vision()) return {};
  const ModelConfig encoder = model.encoder();
  const Shape own = vision_shape(shape);
  const Traffic t = traffic(encoder, implementation);
  if (unit == Unit::vision_attn) return attention_work(encoder, own, implementation, t, pass);
  if (unit == Unit::vision_mlp) return mlp_work(encoder, own, implementation, t, pass);
  if (unit == Unit::merger) return merger_work(model, shape, implementation, pass);
  // The embedding of patches, which every rank of the group repeats.
  const Gemm patches{own.tokens(), double{1} * encoder.hidden, kPatchElements};
  if (pass == UnitPass::F) return {.gemms = {patches}, .kernels = 1};
  return pass == UnitPass::W_late ? weight_gradients(shape, patches) : Work{};
}

}  // namespace

Shape shape_of(const Strategy& strategy, int seq, int microbatch_size) {
  return {.seq = seq,
          .microbatch_size = microbatch_size,
          .tp = strategy.tp,
          .sequence_parallel = strategy.sequence_parallel,
          .recompute = strategy.recompute,
          .cp = strategy.cp,
          .tp_overlap = strategy.tp_overlap,
          .cp_method = strategy.cp_method};
}

double attention_flops(const Work& work, bool backward) {
  double flops = 0;
  for (const Attention& attention : work.attentions)
    if (attention.backward == backward) flops += attention.flops();
  return flops;
}

std::string to_string(GemmKind kind) {
  switch (kind) {
    case GemmKind::forward:
      return "forward";
    case GemmKind::input_gradient:
      return "input_gradient";
    case GemmKind::weight_gradient:
      return "weight_gradient";
  }
  return "";
}

Work work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
          UnitPass pass) {
  if (is_vision(unit)) return vision_work(model, shape, implementation, unit, pass);
  const Traffic t = traffic(model, implementation);
  switch (unit) {
    case Unit::attn:
      return attention_work(model, shape, implementation, t, pass);
    case Unit::mlp:
      return mlp_work(model, shape, implementation, t, pass);
    case Unit::head:
      return head_work(model, shape, t, pass);
    case Unit::embedding:
      return embedding_work(model, shape, implementation, pass);
    default:
      return {};
  }
}

int Division::steps(Unit unit, UnitPass pass, UnitPart part) const {
  const bool forward = pass == UnitPass::F;
  switch (part) {
    case UnitPart::whole:
      return 1;
    case UnitPart::norm:
      return forward && overlaps() ? 1 : 0;
    case UnitPart::before:
      return overlaps() ? tp : 1;
    case UnitPart::core:
      return unit == Unit::attn && !exchanges_heads() ? cp : 1;
    case UnitPart::after:
      return forward && overlaps() ? kPipelineSteps : 1;
  }
  return 0;
}

namespace {

// All steps together.
Work whole_part_work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
                     UnitPass pass, UnitPart part) {
  const Widths w(model, shape);
  const Traffic t = traffic(model, implementation);
  const bool attn = unit == Unit::attn;
  const ForwardParts forward = attn ? attention_forward_parts(w, t) : mlp_forward_parts(model, w, t);
  // Of the MLP what follows the first linear layer is the core.
  Work first = forward.first, activation = forward.first;
  if (!attn) {
    first.sharded_bytes = 0;
    first.kernels = 1;
    activation.gemms.clear();
    activation.kernels -= first.kernels;
  }
  Work work;
  if (pass == UnitPass::F) {
    switch (part) {
      case UnitPart::norm:
        return forward.norm;
      case UnitPart::before:
        if (!shape.division().overlaps()) work = forward.norm;
        add(work, first);
        return work;
      case UnitPart::core:
        return activation;
      default:
        work = forward.second;
        add(work, forward.residual);
        return work;
    }
  }
  switch (part) {
    case UnitPart::before:
      work = {.gemms = {input_gradient(attn ? w.projection() : w.fc2())},
              .sharded_bytes = attn ? t.context * w.bytes(w.q) : 0,
              .kernels = attn ? t.launches.attn_before : 1};
      forward.add_recomputed(work, shape.recompute, unit, implementation);
      return work;
    case UnitPart::core:
      return {.sharded_bytes = t.activation_backward * w.bytes(w.ffn), .kernels = t.launches.mlp_core};
    default:
      return {.gemms = {input_gradient(attn ? w.qkv() : w.fc1(model))},
              .replicated_bytes = (t.norm_backward + t.residual_backward) * w.bytes(w.norm),
              .sharded_bytes =
                  attn ? t.rotary * w.bytes(w.q + w.kv) + t.qkv_backward * w.bytes(w.q + 2 * w.kv) : 0,
              .kernels = attn ? t.launches.attn_after + ring_copies(model, shape, implementation)
                              : t.launches.mlp_after};
  }
}

}  // namespace

Work unit_part_work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
                    UnitPass pass, UnitPart part, int step) {
  if (part == UnitPart::core && unit == Unit::attn) {
    const bool forward = pass == UnitPass::F;
    Work work = attention_core(model, shape, implementation, forward, step);
    if (step > 0) add(work, merging(model, shape, implementation, forward));
    if (step == 0 && !forward) work.kernels += ring_copies(model, shape, implementation);
    return work;
  }
  Work work = whole_part_work(model, shape, implementation, unit, pass, part);
  const int steps = shape.division().steps(unit, pass, part);
  if (steps == 1) return work;
  // The first GEMM is divided: by rows, or in `after` by columns of its output.
  Gemm& gemm = work.gemms.front();
  (part == UnitPart::after ? gemm.n : gemm.m) /= steps;
  const int kernels = part == UnitPart::after ? launches(model, implementation).piece : 1;
  if (step + 1 < steps) return {.gemms = {gemm}, .kernels = kernels};
  if (part == UnitPart::after && implementation == Implementation::suite) work.kernels = kernels;
  return work;
}

double kv_bytes(const ModelConfig& model, const Shape& shape) {
  const Widths w(model, shape);
  return w.bytes(2 * w.kv);
}

double qkv_bytes(const ModelConfig& model, const Shape& shape) {
  return attention_output_bytes(model, shape) + kv_bytes(model, shape);
}

double attention_output_bytes(const ModelConfig& model, const Shape& shape) {
  const Widths w(model, shape);
  return w.bytes(w.q);
}

namespace {

// Of the merger: what its norm and its two linear layers keep. Of the embedding of patches: the patches.
std::vector<SavedTensor> saved_by_ends_of_encoder(const ModelConfig& model, const Shape& shape,
                                                  Implementation implementation, Unit unit) {
  const Merger m(model, shape);
  if (unit == Unit::patches) return {{Saved::patches, m.in.bytes(kPatchElements), true, true}};
  const double fp32 = std::max(kFp32, m.in.element) / m.in.element;
  std::vector<SavedTensor> tensors{{Saved::norm_input, m.in.bytes(m.in.hidden), false, true, false, true}};
  if (implementation == Implementation::suite)
    tensors.push_back({Saved::norm_statistics, m.in.bytes(2 * fp32), false, true, false, true});
  tensors.push_back({Saved::norm_output, m.in.bytes(m.in.hidden), true, true, false, true});
  tensors.push_back({Saved::fc1_output, m.inner_bytes(), false, true});
  tensors.push_back({Saved::activation, m.inner_bytes(), true, true, true});
  tensors.push_back({Saved::inner_gradient, m.inner_bytes(), true, false, false, false, true});
  tensors.push_back(
      {Saved::output_gradient, m.tokens * m.fc2.n * m.in.element, true, false, true, false, true});
  return tensors;
}

}  // namespace

std::vector<SavedTensor> saved_tensors(const ModelConfig& model, const Shape& shape,
                                       Implementation implementation, Unit unit) {
  if (is_vision(unit) && !model.has_vision()) return {};
  if (unit == Unit::vision_attn || unit == Unit::vision_mlp)
    return saved_tensors(model.encoder(), vision_shape(shape), implementation,
                         unit == Unit::vision_attn ? Unit::attn : Unit::mlp);
  if (is_vision(unit)) return saved_by_ends_of_encoder(model, shape, implementation, unit);
  const Widths w(model, shape);
  const bool fused = implementation != Implementation::megatron;
  const bool of_2022 = implementation == Implementation::megatron_2022;
  const Recompute& again = shape.recompute;
  const bool norm_again = again.norm_of(unit), first_again = again.first_linear(unit);
  // Where the core alone is recomputed, Megatron-LM keeps its output, an input of a linear.
  const bool core_again = again.core && (implementation == Implementation::suite || first_again);
  const double heads = double{1} * model.q_heads / shape.tp, fc1 = (model.gated() ? 2 : 1) * w.ffn;
  // Statistics and other sums are fp32 at the least; widths are in elements.
  const double fp32 = std::max(kFp32, w.element) / w.element;
  std::vector<SavedTensor> tensors;
  // `recomputed`: dropped by the forward, made again by I.
  const auto keep = [&](Saved which, double width, bool recomputed = false) {
    tensors.push_back({which, w.bytes(width), false, !recomputed});
  };
  const auto keep_for = [&](UnitPass pass, Saved which, double width, bool recomputed = false) {
    tensors.push_back({which, w.bytes(width), true, !recomputed, pass == UnitPass::W_early});
  };
  const auto make_for = [&](UnitPass pass, Saved which, double width) {
    tensors.push_back({which, w.bytes(width), true, false, pass == UnitPass::W_early, false, true});
  };
  // The norm keeps its input once when fused; unfused autograd keeps an fp32 copy and the scaled tensor, and
  // Megatron-LM's default dropout a mask of one byte per element. A recomputed norm drops what it makes for
  // others, its output, and the statistics of a fused one; not what unfused autograd keeps of its inside.
  const bool layer_norm = model.family == Family::vit;  // always one kernel
  if (fused || layer_norm) {
    keep(Saved::norm_input, w.norm);
    if (implementation == Implementation::suite)
      keep(Saved::norm_statistics, (layer_norm ? 2 : 1) * fp32 * w.norm / w.hidden, norm_again);
  } else {
    keep(Saved::norm_input_fp32, fp32 * w.norm);
    keep(Saved::normalised_input, w.norm);
  }
  if (implementation != Implementation::suite && unit != Unit::head)
    keep(Saved::dropout_mask, w.norm / w.element);
  keep_for(UnitPass::W_late, Saved::norm_output, w.norm, norm_again);
  for (SavedTensor& tensor : tensors) tensor.norm = true;
  switch (unit) {
    case Unit::attn:
      keep(Saved::qkv, w.q + 2 * w.kv, first_again);
      keep_for(UnitPass::W_early, Saved::attention_output, w.q, core_again);
      // Of all rows for some heads, as the core's backward reads it.
      if (shape.division().exchanges_heads()) keep(Saved::core_output, w.q, again.core);
      if (!of_2022) keep(Saved::log_sum_exp, heads * fp32, core_again);
      if (of_2022 && !again.core) {
        keep(Saved::softmax, heads * shape.seq);
        keep(Saved::softmax_mask, heads * shape.seq / w.element);
        keep(Saved::softmax_after_dropout, heads * shape.seq);
      }
      make_for(UnitPass::W_late, Saved::inner_gradient, w.q + 2 * w.kv);
      make_for(UnitPass::W_early, Saved::output_gradient, w.hidden);
      break;
    case Unit::mlp:
      keep(Saved::fc1_output, fc1, first_again);
      if (!fused && model.gated()) {
        keep(Saved::gate_fp32, fp32 * w.ffn, first_again);
        keep(Saved::activated_gate, w.ffn, first_again);
      }
      keep_for(UnitPass::W_early, Saved::activation, w.ffn, first_again);
      make_for(UnitPass::W_late, Saved::inner_gradient, fc1);
      make_for(UnitPass::W_early, Saved::output_gradient, w.hidden);
      break;
    case Unit::embedding:
      // The tokens alone; behind a vision encoder, whose I gets it, W needs the gradient of the output.
      if (!model.has_vision()) return {};
      return {{Saved::output_gradient, w.bytes(w.hidden), true, false, false, false, true}};
    case Unit::head:
      // The suite's loss leaves the gradient of the logits in their place.
      if (implementation == Implementation::suite) {
        keep_for(UnitPass::W_late, Saved::logits_gradient, w.vocab);
      } else {
        keep(Saved::softmax_fp32, fp32 * w.vocab);
        make_for(UnitPass::W_late, Saved::logits_gradient, w.vocab);
      }
      break;
    default:
      break;  // returned above
  }
  return tensors;
}

double optimizer_bytes(Implementation implementation) {
  // AdamW reads the gradient, reads and writes master weight and two moments (28), then the weights are cast
  // to half precision (6, or 2 in the same kernel).
  constexpr double kAdam = 28;
  switch (implementation) {
    case Implementation::suite:
      return kAdam + 2;
    case Implementation::megatron:  // zeroing, the gradients' norm, clipping
      return kAdam + 6 + 4 + 4 + 8;
    case Implementation::megatron_2022:  // and, with fp16's loss scale, scaling back
      return kAdam + 6 + 4 + 4 + 8 + 8;
  }
  return 0;
}

double hidden_bytes(const ModelConfig& model, const Shape& shape) {
  return Widths(model, shape).bytes(model.hidden);
}

double reduced_bytes(const ModelConfig& model, const Shape& shape, Unit unit, UnitPass pass) {
  if (!is_vision(unit)) return hidden_bytes(model, shape);
  const Shape own = vision_shape(shape);
  if (unit == Unit::merger && pass == UnitPass::F) return hidden_bytes(model, own) / kTokensMerged;
  return hidden_bytes(model.encoder(), own);
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
  if (!model.has_vision()) return;
  check("attention heads of the vision encoder", model.vision.heads);
  check("feed-forward columns of the vision encoder", model.vision.ffn);
  check("merged columns of the vision encoder", kTokensMerged * model.vision.hidden);
}

void check_exchanged_heads(const ModelConfig& model, int tp, const Division& division) {
  if (!division.exchanges_heads()) return;
  const auto check = [&](const std::string& what, int heads) {
    if (heads / tp % division.cp != 0)
      throw InputError("", "parallel.cp_method",
                       "is all-to-all, and parallel.cp " + std::to_string(division.cp) +
                           " does not divide the " + std::to_string(heads / tp) + " " + what + " heads of " +
                           model.name + " on each of " + std::to_string(tp) + " tensor-parallel ranks",
                       "use a divisor for parallel.cp, less parallel.tp, or the method ring");
  };
  check("attention", model.q_heads);
  check("key and value", model.kv_heads);
}

}  // namespace stp

// memory: kernels limited by memory bandwidth. `copy`: the device's own copy, 2 bytes moved per byte copied.
// `kernel`: one elementwise kernel, by the bytes of its operands, each read or written once. `elementwise`:
// all elementwise kernels of a unit pass, by the traffic that lib/stp/model declares for it; a profile's
// memory rate refers to this traffic.
#include "suite.h"

#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>

namespace stp::microbench {
namespace {

double traffic(std::initializer_list<Tensor> read, std::initializer_list<Tensor> written) {
  double bytes = 0;
  for (const auto& tensors : {read, written})
    for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

// Tensors of a unit pass on rank 0; those that the unit does not use are empty.
struct MemoryOperands {
  AttentionShape shape;
  Tensor x, y, residual, gain, rstd, gain_gradient;  // of the norm
  Tensor qkv, bias;                                  // of attention
  Tensor gate_up, act, gate_up_gradient;             // of the MLP
  Tensor logits, maximum, own, sums, loss, targets;  // of the head
};

MemoryOperands operands(BenchEnv& env, const ModelConfig& model, int tokens, int tp, Unit unit) {
  const DType statistics = statistics_type(env.type());
  MemoryOperands of{{1, tokens, model.q_heads / tp, model.kv_heads / tp, model.head_dim}};
  of.x = env.make(0, tokens, model.hidden);
  of.y = env.make(0, tokens, model.hidden);
  of.residual = env.make(0, tokens, model.hidden);
  of.gain = env.make(0, 1, model.hidden);
  of.rstd = env.make(0, statistics, tokens, 1);
  of.gain_gradient = env.make(0, statistics, 1, model.hidden);
  if (unit == Unit::attn) {
    of.qkv = env.make(0, tokens, of.shape.qkv_columns());
    of.bias = env.make(0, 1, of.shape.qkv_columns());
  } else if (unit == Unit::mlp) {
    const int64_t ffn = model.ffn / tp;
    of.gate_up = env.make(0, tokens, 2 * ffn);
    of.act = env.make(0, tokens, ffn);
    of.gate_up_gradient = env.make(0, tokens, 2 * ffn);
  } else {
    of.logits = env.make(0, tokens, model.vocab / tp);
    of.maximum = env.make(0, statistics, tokens, 1);
    of.own = env.make(0, statistics, tokens, 1);
    of.sums = env.make(0, statistics, tokens, 2);
    of.loss = env.make(0, statistics, 1, 1);
    of.targets = env.make(0, DType::i32, tokens, 1);
    const std::vector<int32_t> zeros(tokens, 0);
    env.device(0).upload(env.compute(0), of.targets, std::as_bytes(std::span(zeros)));
  }
  return of;
}

// An elementwise kernel of the suite's implementation.
struct Kernel {
  std::string name;
  double bytes;  // each operand once, or twice if changed in place
  std::function<void(Kernels& kernels, Stream& stream)> issue;
};

// The kernels of a unit pass on its operands, in the order of their calls.
std::vector<Kernel> kernels_of(Unit unit, UnitPass pass, const MemoryOperands& of) {
  std::vector<Kernel> all;
  const auto add = [&](double bytes, const auto& kernel) {
    all.push_back({kernel.name, bytes, [kernel](Kernels& on, Stream& stream) { on.issue(stream, kernel); }});
  };
  const bool forward = pass == UnitPass::F;
  if (forward)
    add(traffic({of.x, of.gain}, {of.y, of.rstd}), kernel::NormForward{.centred = false,
                                                                       .x = of.x,
                                                                       .gain = of.gain,
                                                                       .bias = {},
                                                                       .epsilon = 1e-6,
                                                                       .y = of.y,
                                                                       .statistics = of.rstd});
  else
    add(traffic({of.y, of.x, of.gain, of.rstd, of.residual, of.gain_gradient}, {of.y, of.gain_gradient}),
        kernel::NormBackward{.centred = false,
                             .dy = of.y,
                             .x = of.x,
                             .gain = of.gain,
                             .statistics = of.rstd,
                             .residual_factor = 1,
                             .residual = of.residual,
                             .dx = of.y,
                             .gain_gradient = of.gain_gradient,
                             .bias_gradient = {}});
  all.back().name = forward ? "rms_norm_forward" : "rms_norm_backward";
  if (unit == Unit::attn && forward)
    add(traffic({of.qkv, of.bias}, {of.qkv}),
        kernel::BiasRopeForward{.shape = of.shape, .theta = 1e4, .bias = of.bias, .qkv = of.qkv});
  if (unit == Unit::attn && !forward) {  // it does not change the values
    const auto rotated = static_cast<double>(of.shape.q_columns() + of.shape.kv_columns()) /
                         static_cast<double>(of.shape.qkv_columns());
    add(rotated * traffic({of.qkv}, {of.qkv}),
        kernel::RopeBackward{.shape = of.shape, .theta = 1e4, .qkv_gradient = of.qkv});
  }
  if (unit == Unit::mlp && forward)
    add(traffic({of.gate_up}, {of.act}), kernel::SwigluForward{.gate_up = of.gate_up, .out = of.act});
  if (unit == Unit::mlp && !forward)
    add(traffic({of.gate_up, of.act}, {of.gate_up_gradient}),
        kernel::SwigluBackward{
            .gate_up = of.gate_up, .out_gradient = of.act, .gate_up_gradient = of.gate_up_gradient});
  if (unit != Unit::head || !forward) return all;
  // The loss, which writes its gradient over the logits.
  add(traffic({of.logits, of.targets}, {of.maximum, of.own, of.sums}),
      kernel::ExponentialSums{.logits = of.logits,
                              .targets = of.targets,
                              .first = 0,
                              .maximum = of.maximum,
                              .own = of.own,
                              .sums = of.sums});
  add(traffic({of.logits, of.maximum, of.sums, of.targets}, {of.logits}),
      kernel::CrossEntropy{.maximum = of.maximum,
                           .sums = of.sums,
                           .targets = of.targets,
                           .first = 0,
                           .factor = 1e-3,
                           .logits = of.logits,
                           .loss = of.loss});
  return all;
}

Fixture memory_work(BenchEnv& env, double bytes, const BenchEnv::Work& work, const Counters& others = {},
                    bool cold = false) {
  return compute_work(
      env, work,
      [=](double seconds) {
        Counters counters = others;
        counters.insert({{"bytes", bytes}, {"gb_per_s", bytes / seconds / 1e9}});
        return counters;
      },
      cold);
}

void add_elementwise(Suite& suite, const ModelConfig& model, int tp) {
  const Options& options = suite.options();
  const int tokens = options.tokens;
  const auto issue_all = [=](BenchEnv& env, const std::vector<Kernel>& kernels, double bytes) {
    return memory_work(env, bytes,
                       [=, &env](int) {
                         for (const Kernel& kernel : kernels) kernel.issue(env.kernels(0), env.compute(0));
                       },
                       {{"tp", tp}});
  };
  std::set<std::string> added;  // each kernel once, in the first unit pass that has it
  for (const Unit unit : {Unit::attn, Unit::mlp, Unit::head})
    for (const UnitPass pass : {UnitPass::F, UnitPass::I}) {
      Shape shape{tokens, 1, {.tp = tp}};
      shape.element_bytes = static_cast<int>(bytes_of(options.machine.type));
      const Work declared = work(model, shape, Implementation::suite, unit, pass);
      const double bytes = declared.replicated_bytes + declared.sharded_bytes;
      const auto kernels = [=](BenchEnv& env) {
        return kernels_of(unit, pass, operands(env, model, tokens, tp, unit));
      };
      const std::string of_shape = "/tp:" + std::to_string(tp);
      suite.add({.name = "memory/elementwise/" + model.name + "/" + to_string(unit, pass) + of_shape,
                 .bytes = 4 * bytes,
                 .prepare = [=](BenchEnv& env) { return issue_all(env, kernels(env), bytes); }});
      const std::vector<Kernel> without_operands = kernels_of(unit, pass, {});
      for (size_t i = 0; i < without_operands.size(); ++i)
        if (const std::string& name = without_operands[i].name; added.insert(name).second)
          suite.add({.name = "memory/kernel/" + model.name + "/" + name + of_shape,
                     .bytes = 4 * bytes,
                     .prepare = [=](BenchEnv& env) {
                       const Kernel kernel = kernels(env)[i];
                       return issue_all(env, {kernel}, kernel.bytes);
                     }});
    }
}

void add_optimizer(Suite& suite, const ModelConfig& model) {
  const int64_t rows = model.ffn, columns = model.hidden;
  const double bytes = static_cast<double>(rows * columns) * optimizer_bytes(Implementation::suite);
  suite.add({.name = "memory/optimizer/" + model.name, .bytes = bytes, .prepare = [=](BenchEnv& env) {
               const auto make = [&] { return env.make(0, DType::f32, rows, columns); };
               const Tensor gradient = make(), first = make(), second = make(), weight = make();
               const Tensor total = env.make(0, DType::f64, 1, 1);
               const kernel::AddSumOfSquares sum{.factor = 1, .x = gradient, .total = total};
               const kernel::AdamW step{.options = AdamW{},
                                        .max_norm = 1,
                                        .total = total,
                                        .gradient = gradient,
                                        .first_moment = first,
                                        .second_moment = second,
                                        .master = weight,
                                        .weight = weight};
               return memory_work(env, bytes, [=, &env](int) {
                 env.kernels(0).issue(env.compute(0), sum);
                 env.kernels(0).issue(env.compute(0), step);
               });
             }});
}

void add_copy(Suite& suite, double bytes, bool cold) {
  suite.add({.name = std::string(cold ? "memory_cold" : "memory") +
                     "/copy/bytes:" + std::to_string(static_cast<int64_t>(bytes)),
             .bytes = 2 * bytes,
             .prepare = [=](BenchEnv& env) {
               const auto columns = static_cast<int64_t>(bytes / 4);
               const Tensor from = env.make(0, DType::f32, 1, columns),
                            to = env.make(0, DType::f32, 1, columns);
               const kernel::Copy copy{.from = from, .to = to};
               return memory_work(
                   env, 2 * bytes, [=, &env](int) { env.kernels(0).issue(env.compute(0), copy); }, {}, cold);
             }});
}

}  // namespace

void add_memory(Suite& suite) {
  const Options& options = suite.options();
  for (const double mebi : {0.25, 4.0, 64.0})
    for (const bool cold : {false, true}) add_copy(suite, mebi * (1 << 20), cold);
  if (options.machine.processors == 0) add_copy(suite, 1 << 30, false);  // at a GPU's full rate
  for (const ModelConfig& model : options.models) {
    for (const int tp : options.tp)
      if (!skip_unless_sharded(suite, "memory/elementwise", model, tp)) add_elementwise(suite, model, tp);
    add_optimizer(suite, model);
  }
}

}  // namespace stp::microbench

// memory: kernels limited by memory bandwidth. `copy`: the device's own copy, 2 bytes moved per byte copied;
// `kernel`: one elementwise kernel, by the bytes of its operands, each read or written once; `elementwise`:
// all those of a unit pass, by the traffic that lib/stp/model declares for it, to which a profile's memory
// rate refers.
#include "suite.h"

#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "linears.h"

namespace stp::microbench {
namespace {

double traffic(std::initializer_list<Tensor> read, std::initializer_list<Tensor> written) {
  double bytes = 0;
  for (const auto& tensors : {read, written})
    for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

// Tensors of a unit pass on rank 0; those that the unit does not use are empty.
struct Operands {
  AttentionShape shape;
  Tensor x, y, gain, rstd, gain_gradient;       // of the norm
  Tensor qkv, bias;                             // of attention
  Tensor gate_up, act, gate_up_gradient;        // of the MLP
  Tensor logits, maximum, sums, loss, targets;  // of the head
};

Operands operands(BenchEnv& env, const ModelConfig& model, int tokens, int tp, Unit unit) {
  const DType statistics = statistics_type(env.type());
  Operands of{{1, tokens, model.q_heads / tp, model.kv_heads / tp, model.head_dim}};
  of.x = env.make(0, tokens, model.hidden);
  of.y = env.make(0, tokens, model.hidden);
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
    of.sums = env.make(0, statistics, tokens, 2);
    of.loss = env.make(0, statistics, 1, 1);
    of.targets = env.make(0, DType::i32, tokens, 1);
    const std::vector<int32_t> zeros(tokens, 0);
    env.device(0).upload(env.compute(0), of.targets, std::as_bytes(std::span(zeros)));
  }
  return of;
}

// An elementwise kernel of the suite's own implementation.
struct Kernel {
  std::string name;
  double (*bytes)(const Operands& of);  // each operand once, or twice if changed in place
  void (*issue)(Kernels& kernels, Stream& stream, const Operands& of);
};

const Kernel kNormForward{"rms_norm_forward",
                          [](const Operands& of) {
                            return traffic({of.x, of.gain}, {of.y, of.rstd});
                          },
                          [](Kernels& kernels, Stream& stream, const Operands& of) {
                            kernels.rms_norm_forward(stream, of.x, of.gain, 1e-6, of.y, of.rstd);
                          }};
const Kernel kNormBackward{
    "rms_norm_backward",
    [](const Operands& of) {
      return traffic({of.y, of.x, of.gain, of.rstd, of.x, of.gain_gradient}, {of.y, of.gain_gradient});
    },
    [](Kernels& kernels, Stream& stream, const Operands& of) {
      kernels.rms_norm_backward(stream, of.y, of.x, of.gain, of.rstd, 1, of.x, of.y, of.gain_gradient);
    }};
const Kernel kScale{
    "scale", [](const Operands& of) { return traffic({of.x}, {of.y}); },
    [](Kernels& kernels, Stream& stream, const Operands& of) { kernels.scale(stream, 0.5, of.x, of.y); }};
const Kernel kBiasRopeForward{"bias_rope_forward",
                              [](const Operands& of) {
                                return traffic({of.qkv, of.bias}, {of.qkv});
                              },
                              [](Kernels& kernels, Stream& stream, const Operands& of) {
                                kernels.bias_rope_forward(stream, of.shape, 1e4, of.bias, of.qkv);
                              }};
const Kernel kRopeBackward{"rope_backward",
                           [](const Operands& of) {  // it does not change the values
                             const auto rotated =
                                 static_cast<double>(of.shape.q_columns() + of.shape.kv_columns()) /
                                 static_cast<double>(of.shape.qkv_columns());
                             return rotated * traffic({of.qkv}, {of.qkv});
                           },
                           [](Kernels& kernels, Stream& stream, const Operands& of) {
                             kernels.rope_backward(stream, of.shape, 1e4, of.qkv);
                           }};
const Kernel kSwigluForward{"swiglu_forward",
                            [](const Operands& of) { return traffic({of.gate_up}, {of.act}); },
                            [](Kernels& kernels, Stream& stream, const Operands& of) {
                              kernels.swiglu_forward(stream, of.gate_up, of.act);
                            }};
const Kernel kSwigluBackward{"swiglu_backward",
                             [](const Operands& of) {
                               return traffic({of.gate_up, of.act}, {of.gate_up_gradient});
                             },
                             [](Kernels& kernels, Stream& stream, const Operands& of) {
                               kernels.swiglu_backward(stream, of.gate_up, of.act, of.gate_up_gradient);
                             }};
// The head's loss, which leaves its gradient in the logits' place.
const Kernel kRowMaximum{"row_maximum", [](const Operands& of) { return traffic({of.logits}, {of.maximum}); },
                         [](Kernels& kernels, Stream& stream, const Operands& of) {
                           kernels.row_maximum(stream, of.logits, of.maximum);
                         }};
const Kernel kExponentialSums{"exponential_sums",
                              [](const Operands& of) {
                                return traffic({of.logits, of.maximum, of.targets}, {of.sums});
                              },
                              [](Kernels& kernels, Stream& stream, const Operands& of) {
                                kernels.exponential_sums(stream, of.logits, of.maximum, of.targets, 0,
                                                         of.sums);
                              }};
const Kernel kCrossEntropy{"cross_entropy",
                           [](const Operands& of) {
                             return traffic({of.logits, of.maximum, of.sums, of.targets}, {of.logits});
                           },
                           [](Kernels& kernels, Stream& stream, const Operands& of) {
                             kernels.cross_entropy(stream, of.maximum, of.sums, of.targets, 0, 1e-3,
                                                   of.logits, of.loss);
                           }};

// The kernels of a unit pass, in the order of their calls.
const std::map<std::pair<Unit, UnitPass>, std::vector<Kernel>> kKernels{
    {{Unit::attn, UnitPass::F}, {kNormForward, kBiasRopeForward, kScale}},
    {{Unit::attn, UnitPass::I}, {kNormBackward, kRopeBackward}},
    {{Unit::mlp, UnitPass::F}, {kNormForward, kSwigluForward, kScale}},
    {{Unit::mlp, UnitPass::I}, {kNormBackward, kSwigluBackward}},
    {{Unit::head, UnitPass::F}, {kNormForward, kRowMaximum, kExponentialSums, kCrossEntropy}},
    {{Unit::head, UnitPass::I}, {kNormBackward}},
};

ComputeWork::Counters memory_counters(double bytes, int tp) {
  return [=](double seconds) -> std::map<std::string, double> {
    return {{"bytes", bytes}, {"gb_per_s", bytes / seconds / 1e9}, {"tp", tp}};
  };
}

std::unique_ptr<Fixture> issue_all(BenchEnv& env, const std::vector<Kernel>& kernels, const Operands& of,
                                   double bytes, int tp) {
  return std::make_unique<ComputeWork>(
      env,
      [=, &env](int) {
        for (const Kernel& kernel : kernels) kernel.issue(env.kernels(0), env.compute(0), of);
      },
      memory_counters(bytes, tp));
}

void add_elementwise(Suite& suite, const ModelConfig& model, int tp) {
  const Options& options = suite.options();
  const int tokens = options.tokens;
  std::set<std::string> added;  // each kernel once, in the first unit pass that has it
  for (const auto& [of, kernels] : kKernels) {
    const auto [unit, pass] = of;
    Shape shape{tokens, 1, {.tp = tp}};
    shape.element_bytes = static_cast<int>(bytes_of(options.machine.type));
    const Work declared = work(model, shape, Implementation::suite, unit, pass);
    const double bytes = declared.replicated_bytes + declared.sharded_bytes;
    suite.add({.name = "memory/elementwise/" + model.name + "/" + to_string(unit, pass) +
                       "/tp:" + std::to_string(tp),
               .bytes = 4 * bytes,
               .prepare = [=, unit = unit, &all = kernels](BenchEnv& env) {
                 return issue_all(env, all, operands(env, model, tokens, tp, unit), bytes, tp);
               }});
    for (const Kernel& kernel : kernels)
      if (added.insert(kernel.name).second)
        suite.add({.name = "memory/kernel/" + model.name + "/" + kernel.name + "/tp:" + std::to_string(tp),
                   .bytes = 4 * bytes,
                   .prepare = [=, unit = unit](BenchEnv& env) {
                     const Operands its = operands(env, model, tokens, tp, unit);
                     return issue_all(env, {kernel}, its, kernel.bytes(its), tp);
                   }});
  }
}

void add_optimizer(Suite& suite, const ModelConfig& model) {
  const int64_t rows = model.ffn, columns = model.hidden;
  const double bytes = static_cast<double>(rows * columns) * optimizer_bytes(Implementation::suite);
  const auto counters = [bytes](double seconds) -> std::map<std::string, double> {
    return {{"bytes", bytes}, {"gb_per_s", bytes / seconds / 1e9}};
  };
  suite.add({.name = "memory/optimizer/" + model.name, .bytes = bytes, .prepare = [=](BenchEnv& env) {
               const auto make = [&] { return env.make(0, DType::f32, rows, columns); };
               const Tensor gradient = make(), first = make(), second = make(), weight = make();
               const Tensor total = env.make(0, DType::f64, 1, 1);
               return std::make_unique<ComputeWork>(
                   env,
                   [=, &env](int) {
                     env.kernels(0).add_sum_of_squares(env.compute(0), 1, gradient, total);
                     env.kernels(0).adamw(env.compute(0), AdamW{}, 1, total, gradient, first, second, weight,
                                          weight);
                   },
                   counters);
             }});
}

void add_copy(Suite& suite, double bytes, bool cold) {
  const auto counters = [bytes](double seconds) -> std::map<std::string, double> {
    return {{"bytes", 2 * bytes}, {"gb_per_s", 2 * bytes / seconds / 1e9}};
  };
  suite.add({.name = std::string(cold ? "memory_cold" : "memory") +
                     "/copy/bytes:" + std::to_string(static_cast<int64_t>(bytes)),
             .bytes = 2 * bytes,
             .prepare = [=](BenchEnv& env) {
               const auto columns = static_cast<int64_t>(bytes / 4);
               const Tensor from = env.make(0, DType::f32, 1, columns),
                            to = env.make(0, DType::f32, 1, columns);
               return std::make_unique<ComputeWork>(
                   env, [=, &env](int) { env.kernels(0).copy(env.compute(0), from, to); }, counters, cold);
             }});
}

}  // namespace

void add_memory(Suite& suite) {
  const Options& options = suite.options();
  for (const double mebi : {0.25, 4.0, 64.0})
    for (const bool cold : {false, true}) add_copy(suite, mebi * (1 << 20), cold);
  for (const ModelConfig& model : options.models) {
    for (const int tp : options.tp)
      if (!skip_unless_sharded(suite, "memory/elementwise", model, tp)) add_elementwise(suite, model, tp);
    add_optimizer(suite, model);
  }
}

}  // namespace stp::microbench

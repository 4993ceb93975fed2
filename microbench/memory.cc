// memory: what moves data more than it computes. `copy` is the device's own copy, 2 bytes moved per byte
// copied; `kernel` one elementwise kernel over the bytes of its operands, each read or written once;
// `elementwise` all those of a unit pass together, over the traffic that lib/model declares for it, which is
// what a profile's memory rate stands for.
#include "suite.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <stdexcept>

#include "linears.h"

namespace stp::microbench {
namespace {

// One kernel of a unit pass, on rank 0.
struct Piece {
  std::string name;
  double bytes;  // of its operands; of those that it changes in place twice
  std::function<void()> issue;
};

double traffic(std::initializer_list<Tensor> read, std::initializer_list<Tensor> written) {
  double bytes = 0;
  for (const auto& tensors : {read, written})
    for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

// The elementwise kernels of the suite's own implementation, in the order of their calls.
std::vector<Piece> pieces(Machine& machine, const ModelConfig& model, int tokens, int tp, Unit unit,
                          UnitPass pass) {
  Stream& stream = machine.compute(0);
  Kernels& kernels = machine.kernels(0);
  const AttentionShape shape{1, tokens, model.q_heads / tp, model.kv_heads / tp, model.head_dim};
  const DType statistics = statistics_type(machine.type());
  const Tensor x = machine.make(0, tokens, model.hidden), y = machine.make(0, tokens, model.hidden);
  const Tensor gain = machine.make(0, 1, model.hidden), rstd = machine.make(0, statistics, tokens, 1);
  const Tensor gain_gradient = machine.make(0, statistics, 1, model.hidden);
  const bool forward = pass == UnitPass::F;

  std::vector<Piece> all;
  if (forward) {
    all.push_back({"rms_norm_forward", traffic({x, gain}, {y, rstd}),
                   [=, &kernels, &stream] { kernels.rms_norm_forward(stream, x, gain, 1e-6, y, rstd); }});
  } else {
    all.push_back({"rms_norm_backward", traffic({y, x, gain, rstd, x, gain_gradient}, {y, gain_gradient}),
                   [=, &kernels, &stream] {
                     kernels.rms_norm_backward(stream, y, x, gain, rstd, 1, x, y, gain_gradient);
                   }});
  }
  const Piece scale{"scale", traffic({x}, {y}), [=, &kernels, &stream] { kernels.scale(stream, 0.5, x, y); }};
  if (unit == Unit::attn) {
    const Tensor qkv = machine.make(0, tokens, shape.qkv_columns());
    const Tensor bias = machine.make(0, 1, shape.qkv_columns());
    if (forward) {
      all.push_back({"bias_rope_forward", traffic({qkv, bias}, {qkv}),
                     [=, &kernels, &stream] { kernels.bias_rope_forward(stream, shape, 1e4, bias, qkv); }});
      all.push_back(scale);
    } else {  // it leaves the values alone
      const auto rotated = static_cast<double>(shape.q_columns() + shape.kv_columns()) /
                           static_cast<double>(shape.qkv_columns());
      all.push_back({"rope_backward", rotated * traffic({qkv}, {qkv}),
                     [=, &kernels, &stream] { kernels.rope_backward(stream, shape, 1e4, qkv); }});
    }
  } else if (unit == Unit::mlp) {
    const int64_t ffn = model.ffn / tp;
    const Tensor gate_up = machine.make(0, tokens, 2 * ffn), act = machine.make(0, tokens, ffn),
                 gradient = machine.make(0, tokens, 2 * ffn);
    if (forward) {
      all.push_back({"swiglu_forward", traffic({gate_up}, {act}),
                     [=, &kernels, &stream] { kernels.swiglu_forward(stream, gate_up, act); }});
      all.push_back(scale);
    } else {
      all.push_back({"swiglu_backward", traffic({gate_up, act}, {gradient}),
                     [=, &kernels, &stream] { kernels.swiglu_backward(stream, gate_up, act, gradient); }});
    }
  } else if (forward) {  // the head's loss, which leaves its gradient in the logits' place
    const Tensor logits = machine.make(0, tokens, model.vocab / tp);
    const Tensor maximum = machine.make(0, statistics, tokens, 1),
                 sums = machine.make(0, statistics, tokens, 2);
    const Tensor loss = machine.make(0, statistics, 1, 1), targets = machine.make(0, DType::i32, tokens, 1);
    const std::vector<int32_t> zeros(tokens, 0);
    machine.device(0).upload(stream, targets, std::as_bytes(std::span(zeros)));
    all.push_back({"row_maximum", traffic({logits}, {maximum}),
                   [=, &kernels, &stream] { kernels.row_maximum(stream, logits, maximum); }});
    all.push_back({"exponential_sums", traffic({logits, maximum, targets}, {sums}), [=, &kernels, &stream] {
                     kernels.exponential_sums(stream, logits, maximum, targets, 0, sums);
                   }});
    all.push_back(
        {"cross_entropy", traffic({logits, maximum, sums, targets}, {logits}), [=, &kernels, &stream] {
           kernels.cross_entropy(stream, maximum, sums, targets, 0, 1e-3, logits, loss);
         }});
  }
  return all;
}

ComputeWork::Counters memory_counters(double bytes, int tp) {
  return [=](double seconds) -> std::map<std::string, double> {
    return {{"bytes", bytes}, {"gb_per_s", bytes / seconds / 1e9}, {"tp", tp}};
  };
}

// Which kernels a unit pass has, where the pass before has not had them.
const std::map<std::pair<Unit, UnitPass>, std::vector<std::string>> kKernels{
    {{Unit::attn, UnitPass::F}, {"rms_norm_forward", "bias_rope_forward", "scale"}},
    {{Unit::attn, UnitPass::I}, {"rms_norm_backward", "rope_backward"}},
    {{Unit::mlp, UnitPass::F}, {"swiglu_forward"}},
    {{Unit::mlp, UnitPass::I}, {"swiglu_backward"}},
    {{Unit::head, UnitPass::F}, {"row_maximum", "exponential_sums", "cross_entropy"}},
    {{Unit::head, UnitPass::I}, {}},
};

void add_elementwise(Suite& suite, const ModelConfig& model, int tp) {
  const Options& options = suite.options();
  const int tokens = options.tokens;
  for (const auto& [of, kernels] : kKernels) {
    const auto [unit, pass] = of;
    Shape shape{tokens, 1, tp};
    shape.element_bytes = static_cast<int>(bytes_of(options.machine.type));
    const Work declared = work(model, shape, Implementation::suite, unit, pass);
    const double bytes = declared.replicated_bytes + declared.sharded_bytes;
    suite.add({.name = "memory/elementwise/" + model.name + "/" + to_string(unit, pass) +
                       "/tp:" + std::to_string(tp),
               .bytes = 4 * bytes,
               .prepare = [=, unit = unit, pass = pass](Machine& machine) {
                 return std::make_unique<ComputeWork>(
                     machine,
                     [all = pieces(machine, model, tokens, tp, unit, pass)](int) {
                       for (const Piece& piece : all) piece.issue();
                     },
                     memory_counters(bytes, tp));
               }});
    for (const std::string& name : kernels)
      suite.add({.name = "memory/kernel/" + model.name + "/" + name + "/tp:" + std::to_string(tp),
                 .bytes = 4 * bytes,
                 .prepare = [=, unit = unit, pass = pass](Machine& machine) {
                   const auto all = pieces(machine, model, tokens, tp, unit, pass);
                   const auto named = [&](const Piece& piece) { return piece.name == name; };
                   const auto found = std::find_if(all.begin(), all.end(), named);
                   if (found == all.end()) throw std::logic_error("no kernel " + name);
                   const Piece& piece = *found;
                   return std::make_unique<ComputeWork>(
                       machine, [issue = piece.issue](int) { issue(); }, memory_counters(piece.bytes, tp));
                 }});
  }
}

void add_optimizer(Suite& suite, const ModelConfig& model) {
  const int64_t rows = model.ffn, columns = model.hidden;
  const double bytes = static_cast<double>(rows * columns) * optimizer_bytes(Implementation::suite);
  const auto counters = [bytes](double seconds) -> std::map<std::string, double> {
    return {{"bytes", bytes}, {"gb_per_s", bytes / seconds / 1e9}};
  };
  suite.add({.name = "memory/optimizer/" + model.name, .bytes = bytes, .prepare = [=](Machine& machine) {
               const auto make = [&] { return machine.make(0, DType::f32, rows, columns); };
               const Tensor gradient = make(), first = make(), second = make(), weight = make();
               const Tensor total = machine.make(0, DType::f64, 1, 1);
               return std::make_unique<ComputeWork>(
                   machine,
                   [=, &machine](int) {
                     machine.kernels(0).add_sum_of_squares(machine.compute(0), 1, gradient, total);
                     machine.kernels(0).adamw(machine.compute(0), AdamW{}, 1, total, gradient, first, second,
                                              weight, weight);
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
             .prepare = [=](Machine& machine) {
               const auto columns = static_cast<int64_t>(bytes / 4);
               const Tensor from = machine.make(0, DType::f32, 1, columns),
                            to = machine.make(0, DType::f32, 1, columns);
               return std::make_unique<ComputeWork>(
                   machine, [=, &machine](int) { machine.kernels(0).copy(machine.compute(0), from, to); },
                   counters, cold);
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

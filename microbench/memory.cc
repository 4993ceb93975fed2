// memory: what moves data more than it computes. `copy` is the device's own copy, 2 bytes moved per byte
// copied; `elementwise` all of a unit pass but its products and attention, over the traffic that lib/model
// declares for it, which is what a profile's memory rate stands for.
#include "suite.h"

#include "linears.h"

namespace stp::microbench {
namespace {

// The elementwise kernels of one unit pass of the suite's own implementation, on rank 0.
Machine::Work elementwise(Machine& machine, const ModelConfig& model, int tokens, int tp, Unit unit,
                          UnitPass pass) {
  Stream& stream = machine.compute(0);
  Kernels& kernels = machine.kernels(0);
  const AttentionShape shape{1, tokens, model.q_heads / tp, model.kv_heads / tp, model.head_dim};
  const Tensor x = machine.make(0, tokens, model.hidden), y = machine.make(0, tokens, model.hidden);
  const Tensor gain = machine.make(0, 1, model.hidden), rstd = machine.make(0, DType::f32, tokens, 1);
  const Tensor gain_gradient = machine.make(0, DType::f32, 1, model.hidden);
  const bool forward = pass == UnitPass::F;
  const auto norm = [=, &kernels, &stream] {
    if (forward) {
      kernels.rms_norm_forward(stream, x, gain, 1e-6, y, rstd);
    } else {
      kernels.rms_norm_backward(stream, y, x, gain, rstd, 1, x, y, gain_gradient);
    }
  };
  switch (unit) {
    case Unit::attn: {
      const Tensor qkv = machine.make(0, tokens, shape.qkv_columns());
      const Tensor bias = machine.make(0, 1, shape.qkv_columns());
      return [=, &kernels, &stream](int) {
        norm();
        if (forward) {
          kernels.bias_rope_forward(stream, shape, 1e4, bias, qkv);
          kernels.scale(stream, 0.5, x, y);
        } else {
          kernels.rope_backward(stream, shape, 1e4, qkv);
        }
      };
    }
    case Unit::mlp: {
      const int64_t ffn = model.ffn / tp;
      const Tensor gate_up = machine.make(0, tokens, 2 * ffn), act = machine.make(0, tokens, ffn),
                   gradient = machine.make(0, tokens, 2 * ffn);
      return [=, &kernels, &stream](int) {
        norm();
        if (forward) {
          kernels.swiglu_forward(stream, gate_up, act);
          kernels.scale(stream, 0.5, x, y);
        } else {
          kernels.swiglu_backward(stream, gate_up, act, gradient);
        }
      };
    }
    default: {  // the head: its norm and the loss
      const Tensor logits = machine.make(0, tokens, model.vocab / tp);
      const Tensor maximum = machine.make(0, DType::f32, tokens, 1),
                   sums = machine.make(0, DType::f32, tokens, 2);
      const Tensor loss = machine.make(0, DType::f32, 1, 1), targets = machine.make(0, DType::i32, tokens, 1);
      const std::vector<int32_t> zeros(tokens, 0);
      machine.device(0).upload(stream, targets, std::as_bytes(std::span(zeros)));
      return [=, &kernels, &stream](int) {
        norm();
        if (!forward) return;  // the suite's loss leaves the gradient in the logits' place
        kernels.row_maximum(stream, logits, maximum);
        kernels.exponential_sums(stream, logits, maximum, targets, 0, sums);
        kernels.cross_entropy(stream, maximum, sums, targets, 0, 1e-3, logits, loss);
      };
    }
  }
}

void add_elementwise(Suite& suite, const ModelConfig& model, int tp, double slow) {
  const Options& options = suite.options();
  for (const Unit unit : {Unit::attn, Unit::mlp, Unit::head})
    for (const UnitPass pass : {UnitPass::F, UnitPass::I}) {
      Shape shape{options.tokens, 1, tp};
      shape.element_bytes = static_cast<int>(bytes_of(options.machine.type));
      const Work declared = work(model, shape, Implementation::suite, unit, pass);
      const double bytes = declared.replicated_bytes + declared.sharded_bytes;
      const auto counters = [bytes, tp](double seconds) -> std::map<std::string, double> {
        return {{"bytes", bytes}, {"gb_per_s", bytes / seconds / 1e9}, {"tp", tp}};
      };
      suite.add({.name = "memory/elementwise/" + model.name + "/" + to_string(unit, pass) +
                         "/tp:" + std::to_string(tp),
                 .bytes = 4 * bytes,
                 .prepare = [=, &suite](Machine& machine) {
                   return std::make_unique<ComputeWork>(
                       machine, elementwise(machine, model, suite.options().tokens, tp, unit, pass), counters,
                       slow);
                 }});
    }
}

void add_optimizer(Suite& suite, const ModelConfig& model, double slow) {
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
                   counters, slow);
             }});
}

void add_copy(Suite& suite, double bytes, double slow, bool cold) {
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
                   counters, slow, cold);
             }});
}

}  // namespace

void add_memory(Suite& suite) {
  const Options& options = suite.options();
  const double slow = options.slow.contains("memory") ? options.slow.at("memory") : 1;
  for (const double mebi : {0.25, 4.0, 64.0})
    for (const bool cold : {false, true}) add_copy(suite, mebi * (1 << 20), slow, cold);
  for (const ModelConfig& model : options.models) {
    for (const int tp : options.tp)
      if (!linears(model, options.tokens, tp).empty()) add_elementwise(suite, model, tp, slow);
    add_optimizer(suite, model, slow);
  }
}

}  // namespace stp::microbench

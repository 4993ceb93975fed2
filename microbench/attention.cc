// attention: causal, forward and backward, by sequence length. FLOPs are those computed: the lower triangle;
// the backward has 2.5 times the forward's.
#include "suite.h"

namespace stp::microbench {

void add_attention(Suite& suite) {
  const Options& options = suite.options();
  std::vector<int> lengths{options.tokens / 2, options.tokens};
  if (!options.quick) lengths.push_back(2 * options.tokens);
  for (const ModelConfig& model : options.models)
    for (const int tp : options.tp) {
      if (skip_unless_sharded(suite, "attention", model, tp)) continue;
      for (const int seq : lengths) {
        const AttentionShape shape{1, seq, model.q_heads / tp, model.kv_heads / tp, model.head_dim};
        for (const UnitPass pass : {UnitPass::F, UnitPass::I}) {
          const Work declared = work(model, {seq, 1, tp}, Implementation::suite, Unit::attn, pass);
          const double flops = attention_flops(declared, pass == UnitPass::I);
          const auto counters = [=](double seconds) -> Counters {
            return {{"flops", flops},
                    {"gflop_per_s", flops / seconds / 1e9},
                    {"tp", tp},
                    {"seq", shape.seq},
                    {"q_heads", shape.q_heads},
                    {"kv_heads", shape.kv_heads},
                    {"head_dim", shape.head_dim}};
          };
          suite.add({.name = "attention/" + model.name + (pass == UnitPass::F ? "/forward" : "/backward") +
                             "/seq:" + std::to_string(seq) + "/tp:" + std::to_string(tp),
                     .bytes = static_cast<double>(bytes_of(options.machine.type)) * 4 *
                              static_cast<double>(shape.tokens() * shape.qkv_columns()),
                     .prepare = [shape, pass, counters](BenchEnv& env) {
                       const Tensor qkv = env.make(0, shape.tokens(), shape.qkv_columns());
                       const Tensor out = env.make(0, shape.tokens(), shape.q_columns());
                       const Tensor log_sum_exp = env.make(0, DType::f32, shape.tokens(), shape.q_heads);
                       const Tensor gradient = env.make(0, shape.tokens(), shape.qkv_columns());
                       Stream& stream = env.compute(0);
                       Kernels& kernels = env.kernels(0);
                       const kernel::AttentionForward forward{
                           .shape = shape, .qkv = qkv, .out = out, .log_sum_exp = log_sum_exp};
                       const kernel::AttentionBackward backward{.shape = shape,
                                                                .qkv = qkv,
                                                                .out = out,
                                                                .log_sum_exp = log_sum_exp,
                                                                .out_gradient = out,
                                                                .qkv_gradient = gradient};
                       kernels.issue(stream, forward);
                       const BenchEnv::Work work = [=, &stream, &kernels](int) {
                         if (pass == UnitPass::F)
                           kernels.issue(stream, forward);
                         else
                           kernels.issue(stream, backward);
                       };
                       return compute_work(env, work, counters);
                     }});
        }
      }
    }
}

}  // namespace stp::microbench

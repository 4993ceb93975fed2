#include "stp/cost/hardware.h"

#include <algorithm>

#include "stp/cost/gemm.h"

namespace stp {
namespace {

double seconds(const Work& work, const HardwareProfile& profile) {
  double time = work.kernels * profile.kernel_overhead_s;
  for (const Gemm& gemm : work.gemms) time += gemm_seconds(profile, gemm);
  time += work.attention_forward_flops / (profile.peak_flops * profile.attention_forward_efficiency);
  time += work.attention_backward_flops / (profile.peak_flops * profile.attention_backward_efficiency);
  time +=
      (work.replicated_bytes * profile.elementwise_factor + work.sharded_bytes) / profile.memory_bytes_per_s;
  return time;
}

// The optimizer step reads the gradients, reads and writes its own state, and writes the weights.
double optimizer_traffic(double parameters) {
  const ParameterBytes bytes = parameter_bytes(parameters);
  return bytes.gradients + 2 * bytes.optimizer + bytes.weights;
}

}  // namespace

CostTable hardware_cost_table(const Job& job, const HardwareProfile& profile,
                              const std::vector<int>& layers_per_stage, const Placement& placement) {
  CostTable table;
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses)
      table.at(unit, pass) = seconds(work(job.model, job.shape, job.implementation, unit, pass), profile);
  const double bytes = hidden_bytes(job.model, job.shape);
  table.all_reduce = all_reduce_seconds(profile, bytes, job.shape.tp);
  table.transfer_within_node = transfer_seconds(profile.within_node, bytes);
  table.transfer_between_nodes = transfer_seconds(profile.between_nodes, bytes);
  for (int rank = 0; rank < job.pp; ++rank)
    table.node_of_rank.push_back(rank * job.shape.tp / profile.gpus_per_node);
  for (const double parameters : parameters_per_rank(job, layers_per_stage, placement))
    table.optimizer.push_back(optimizer_traffic(parameters) / profile.memory_bytes_per_s);
  return table;
}

std::vector<double> parameters_per_rank(const Job& job, const std::vector<int>& layers_per_stage,
                                        const Placement& placement) {
  std::vector<double> parameters(job.pp, 0);
  for (int stage = 0; stage < placement.stages(); ++stage) {
    double& here = parameters[placement.rank_of(stage)];
    here += layers_per_stage[stage] * job.model.layer_parameters() / job.shape.tp;
    if (stage == 0) here += job.model.vocabulary_parameters() / job.shape.tp;
    if (stage + 1 == placement.stages()) here += job.model.vocabulary_parameters() / job.shape.tp;
  }
  return parameters;
}

ParameterBytes parameter_bytes(double parameters) {
  constexpr double kBf16 = 2, kFp32 = 4;
  return {kBf16 * parameters, kFp32 * parameters, 3 * kFp32 * parameters};
}

std::vector<ActivationBytes> activation_bytes(const Job& job, const std::vector<int>& layers_per_stage) {
  const auto unit_bytes = [&](Unit unit) {
    ActivationBytes bytes{0, 0};
    for (const SavedTensor& tensor : saved_tensors(job.model, job.shape, job.implementation, unit)) {
      if (tensor.made_by_forward) bytes.until_I += tensor.bytes;
      if (tensor.weight_gradient) bytes.until_W += tensor.bytes;
    }
    // Zero-bubble code over autograd keeps nearly all of the graph's tensors until W: its own accounting
    // (sail-sg/zero-bubble, ZB-V) frees 2 of 34 at I.
    if (job.implementation == Implementation::megatron) bytes.until_W = bytes.until_I * 32 / 34;
    return bytes;
  };
  const ActivationBytes attn = unit_bytes(Unit::attn), mlp = unit_bytes(Unit::mlp),
                        head = unit_bytes(Unit::head);
  std::vector<ActivationBytes> stages;
  for (const int layers : layers_per_stage)
    stages.push_back({layers * (attn.until_I + mlp.until_I), layers * (attn.until_W + mlp.until_W)});
  stages.back().until_I += head.until_I;
  stages.back().until_W += head.until_W;
  return stages;
}

std::vector<double> peak_activation_bytes(const Schedule& schedule,
                                          const std::vector<ActivationBytes>& bytes) {
  std::vector<double> peaks;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    double alive = 0, peak = 0;
    for (const Block& block : schedule.ranks[rank]) {
      double freed = 0;
      for (const Action& action : block.actions()) {
        const ActivationBytes& stage = bytes[schedule.placement.stage(rank, action.chunk)];
        switch (action.pass) {
          case Pass::F:
            alive += stage.until_I;
            break;
          case Pass::I:
            freed += stage.until_I - stage.until_W;
            break;
          case Pass::B:
            freed += stage.until_I;
            break;
          case Pass::W:
            freed += stage.until_W;
            break;
        }
      }
      peak = std::max(peak, alive);
      alive -= freed;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace stp

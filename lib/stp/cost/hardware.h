// Seconds and bytes of a model on a cluster: what work.h declares, at the rates of a hardware profile.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/cost/cost_table.h"
#include "stp/model/work.h"

namespace stp {

/// One configuration of a training job. World ranks are in the order of RankGrid.
struct Job {
  ModelConfig model;
  Shape shape;
  Implementation implementation;
  // Whether each rank of a tensor-parallel group sends the next stage 1/tp of the tensor, which is gathered
  // there over the faster links (Megatron-LM's scatter/gather, arXiv 2104.04473, section 4.1). With sequence
  // parallelism a rank has only that much to send.
  bool scatter_transfers = false;
  bool sends_share_adapter = true;  // whether two transfers of a block to two other nodes do

  [[nodiscard]] const Strategy& strategy() const { return shape.strategy; }
};

/// The cost table of `job` on `machine`: a unit's GEMMs, attention, elementwise traffic and launches, one
/// after the other. `optimizer` and `gradient_reduce` follow from the parameters that `layers_per_stage` and
/// `placement` put on each rank, and those of `first_buckets`, the Program's. Collectives are priced by where
/// their groups are, with the adapters of a node shared by all ranks there of the same pipeline rank
/// (group_span.h): as the slowest tensor-parallel group of all, and the slowest data-parallel group of the
/// pipeline rank.
CostTable hardware_cost_table(const Job& job, const HardwareProfile& machine,
                              const std::vector<int>& layers_per_stage, const Placement& placement,
                              const std::vector<Bucket>& first_buckets = {});

/// Parameters on each pipeline rank's GPU: its layers, the vision encoder and the embedding on the first
/// stage, the head on the last.
std::vector<double> parameters_per_rank(const Job& job, const std::vector<int>& layers_per_stage,
                                        const Placement& placement);

/// Bytes of `parameters` parameters by kind: bf16 weights, gradients of the job's type, fp32 masters and
/// AdamW's two moments, the last two divided by the replicas with ZeRO-1. With post-validation `optimizer`
/// has a copy of all that a step changes, the share's weights too.
struct ParameterBytes {
  double weights, gradients, optimizer;
};
ParameterBytes parameter_bytes(double parameters, const Job& job);

/// Bytes that one microbatch of one virtual stage keeps: from F until I or B, and, where the backward is
/// split, from I until W; and what one layer recomputes, there while I or B runs: with full recomputation all
/// of the layer, else the larger of its units' tensors.
struct ActivationBytes {
  double until_I, until_W;
  double during_backward = 0;
  double offloaded = 0;  // of until_I, where the activation is offloaded
};
std::vector<ActivationBytes> activation_bytes(const Job& job, const std::vector<int>& layers_per_stage);

/// Peak bytes of saved tensors on each rank, in the order of its blocks; the two actions of a braid count as
/// alive together. What is offloaded is gone from the block on that waits for the copy, and there again with
/// the block beside which it is copied back.
/// `microbatch_factors`, if not empty, multiply what each of the step's microbatches keeps.
std::vector<double> peak_activation_bytes(const Program& program, const std::vector<ActivationBytes>& bytes,
                                          const std::vector<double>& microbatch_factors = {});
/// The same of one rank.
double peak_activation_bytes(const Program& program, int rank, const std::vector<ActivationBytes>& bytes,
                             const std::vector<double>& microbatch_factors = {});

/// The largest sum of bytes that are on the host for each rank: from the start of the copy there to the end
/// of the copy back.
std::vector<double> peak_host_bytes(const Program& program, const std::vector<ActivationBytes>& bytes);

}  // namespace stp

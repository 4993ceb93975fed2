// Seconds and bytes of a model on a cluster: the work in work.h at the rates of a hardware profile.
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
  // Each rank of a tensor-parallel group sends 1/tp of the tensor to the next stage, which gathers it over
  // faster links (Megatron-LM's scatter/gather, arXiv 2104.04473, section 4.1). With sequence parallelism a
  // rank has only 1/tp to send.
  bool scatter_transfers = false;
  bool sends_share_adapter = true;  // two transfers of a block to two other nodes share one

  [[nodiscard]] const Strategy& strategy() const { return shape.strategy; }
};

/// The cost table of `job` on `machine`: a unit's GEMMs, attention, elementwise traffic and launches, one
/// after the other. `optimizer` and `gradient_reduce` follow from each rank's parameters (by
/// `layers_per_stage` and `placement`) and from the Program's `first_buckets`. Collectives cost what their
/// groups' locations imply; all ranks of a node with the same pipeline rank share its adapters
/// (group_span.h). The slowest tensor-parallel group of all counts, and the slowest data-parallel group of
/// the pipeline rank.
CostTable hardware_cost_table(const Job& job, const HardwareProfile& machine,
                              const std::vector<int>& layers_per_stage, const Placement& placement,
                              const std::vector<Bucket>& first_buckets = {});

/// Parameters on each pipeline rank's GPU: its layers; on the first stage the vision encoder and the
/// embedding; on the last the head.
std::vector<double> parameters_per_rank(const Job& job, const std::vector<int>& layers_per_stage,
                                        const Placement& placement);

/// Bytes of `parameters` parameters by kind: bf16 weights, gradients of the job's type, fp32 master weights
/// and AdamW's two moments. ZeRO-1 divides master weights and moments by the replicas. With post-validation
/// `optimizer` includes a copy of everything that a step changes, also of the share's weights.
struct ParameterBytes {
  double weights, gradients, optimizer;
};
ParameterBytes parameter_bytes(double parameters, const Job& job);

/// Bytes that one microbatch of one virtual stage keeps: from F until I or B; and, if the backward is split,
/// from I until W. `during_backward`: the recomputed bytes of one layer, while I or B runs; with full
/// recomputation those of the whole layer, else those of the larger unit.
struct ActivationBytes {
  double until_I, until_W;
  double during_backward = 0;
  double offloaded = 0;  // part of until_I, if the activation is offloaded
};
std::vector<ActivationBytes> activation_bytes(const Job& job, const std::vector<int>& layers_per_stage);

/// Peak bytes of saved tensors on each rank, in the order of its blocks. The two actions of a braid count as
/// alive together. Offloaded bytes are not counted from the block that waits for the copy up to the block
/// beside the copy back. `microbatch_factors`, if not empty, multiply the bytes of the step's microbatches.
std::vector<double> peak_activation_bytes(const Program& program, const std::vector<ActivationBytes>& bytes,
                                          const std::vector<double>& microbatch_factors = {});
/// The same for one rank.
double peak_activation_bytes(const Program& program, int rank, const std::vector<ActivationBytes>& bytes,
                             const std::vector<double>& microbatch_factors = {});

/// Peak bytes on the host for each rank: from the start of a copy to the host until the end of the copy back.
std::vector<double> peak_host_bytes(const Program& program, const std::vector<ActivationBytes>& bytes);

}  // namespace stp

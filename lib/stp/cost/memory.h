// Bytes of a model on a cluster: parameters and their state, saved tensors, buffers.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "stp/cost/job.h"
#include "stp/program/program.h"

namespace stp {

/// Parameters of each virtual stage on one tensor-parallel rank. Tied embeddings count once if one rank has
/// first and last stage.
std::vector<double> parameters_per_stage(const Job& job, const std::vector<int>& layers_per_stage,
                                         const Placement& placement);

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

/// Bytes on a rank beside those of parameters and saved tensors, with Transformer Engine; else none.
/// `buffers` are kept. `in_backward` is working memory beside the saved tensors; `in_step` that of the
/// optimizer's step, when there are no saved tensors.
struct WorkingBytes {
  double buffers = 0, in_backward = 0, in_step = 0;

  /// Bytes at the peak beside `activations` bytes of saved tensors.
  [[nodiscard]] double beside(double activations) const {
    return buffers + std::max(in_backward, in_step - activations);
  }
};
/// The rank with the first virtual stage gives as `of_first_stage` the bytes that a microbatch keeps there:
/// they are free when the embedding makes its gradient.
WorkingBytes working_bytes(double parameters, const Job& job, bool last_stage,
                           std::optional<double> of_first_stage = {});

/// Bytes that one microbatch of one virtual stage keeps: from F until I or B; and, if the backward is split,
/// from I until W. `during_backward`: the recomputed bytes of one layer, while I or B runs; with full
/// recomputation those of the whole layer, else those of the larger unit.
struct ActivationBytes {
  double until_I, until_W;
  double during_backward = 0;
  double offloaded = 0;    // part of until_I, if the activation is offloaded
  double shared_head = 0;  // of a rank's share of the head: from S until T or U
};
std::vector<ActivationBytes> activation_bytes(const Job& job, const std::vector<int>& layers_per_stage,
                                              int pipelines = 1);

/// Peak bytes of saved tensors on each rank, in the order of its blocks. The two actions of a braid count as
/// alive together. Offloaded bytes are not counted from the block that waits for the copy up to the block
/// beside the copy back; an outline() copies as if all blocks had ops. `microbatch_factors`, if not empty,
/// multiply the bytes of the step's microbatches.
std::vector<double> peak_activation_bytes(const Program& program, const std::vector<ActivationBytes>& bytes,
                                          const std::vector<double>& microbatch_factors = {});
/// The same for one rank.
double peak_activation_bytes(const Program& program, int rank, const std::vector<ActivationBytes>& bytes,
                             const std::vector<double>& microbatch_factors = {});

/// Peak bytes on the host for each rank: from the start of a copy to the host until the end of the copy back.
std::vector<double> peak_host_bytes(const Program& program, const std::vector<ActivationBytes>& bytes);

}  // namespace stp

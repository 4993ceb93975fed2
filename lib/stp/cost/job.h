// A training job, as the cost model and the memory model take it.
#pragma once

#include <array>

#include "stp/model/work.h"

namespace stp {

/// What a recipe of Megatron-Core sets beside the strategy; only for implementations with Transformer Engine.
struct Recipe {
  double bucket_parameters = 0;  // of a rank's data-parallel bucket; 0: Megatron-Core's default
  /// Whether the optimizer steps the first chunk first and gathers its weights beside the rest of the step
  /// (overlap_param_gather_with_optimizer_step).
  bool gathers_in_step = false;
  /// Bytes of optimizer state per parameter: 12 (master weight and two moments in fp32), 10 (the master
  /// weight as a remainder of two bytes) or 6 (the moments in bf16, too).
  int state_bytes = 12;
  /// SMs of the collectives beside GEMMs (num_sm), of attn and mlp: reduce-scatter beside proj and fc2,
  /// all-gather beside the input gradients of qkv and fc1, reduce-scatter beside their weight gradients.
  /// Transformer Engine's default is 16.
  struct OverlapSms {
    std::array<int, 2> forward{16, 16}, input_gradient{16, 16}, weight_gradient{16, 16};
    bool operator==(const OverlapSms&) const = default;
  } overlap_sms;
  bool operator==(const Recipe&) const = default;
};

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
  Recipe recipe;

  [[nodiscard]] const Strategy& strategy() const { return shape.strategy; }
  /// The number of replicas that divide the optimizer's state.
  [[nodiscard]] int optimizer_shares() const { return strategy().zero ? strategy().replicas() : 1; }
  /// Whether the step copies the gradients to fp32 first: Adam takes no others, but for smaller states.
  [[nodiscard]] bool copies_gradients() const {
    return shape.gradient_bytes < kFp32 && recipe.state_bytes == Recipe().state_bytes;
  }
};

}  // namespace stp

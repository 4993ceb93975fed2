// The tensors that a unit keeps between its passes, by one name each, for the cost model and the runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace stp {

/// A tensor that a forward keeps for the backward, or that I makes for W. Which of them a unit has:
/// saved_tensors() in work.h. Units that are not the suite's own have some that the runtime never makes.
enum class Saved : uint8_t {
  patches,  // of the embedding of patches
  // The norm's.
  norm_input,
  norm_input_fp32,
  normalised_input,
  norm_statistics,
  dropout_mask,
  norm_output,
  // Attention's.
  qkv,
  attention_output,  // of this rank's rows: the projection's input
  core_output,       // with an all-to-all: the same as the core makes it
  log_sum_exp,
  softmax,
  softmax_mask,
  softmax_after_dropout,
  // The MLP's and the merger's.
  fc1_output,  // gated: gate and up
  gate_fp32,
  activated_gate,
  activation,
  // The head's.
  softmax_fp32,
  logits_gradient,
  // Made by I.
  inner_gradient,   // of the first linear layer's output: of q, k and v, or of fc1's
  output_gradient,  // of the unit's output
};
inline constexpr size_t kSavedTensors = static_cast<size_t>(Saved::output_gradient) + 1;

/// For messages: "norm input".
std::string to_string(Saved tensor);

}  // namespace stp

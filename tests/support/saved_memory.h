// Bytes of saved tensors, op by op: the peak of a runtime that keeps exactly the declared tensors.
#pragma once

#include <vector>

#include "stp/model/work.h"
#include "stp/program/program.h"

namespace stp {

/// Peak bytes of saved tensors on each pipeline rank, of one of its tensor-parallel ranks, in the order of
/// the rank's ops. A forward's tensors exist from its op on. I frees those that only it needs and makes those
/// that W needs; each of W's two parts frees the tensors that it uses last. An op makes its tensors before it
/// frees any; what is offloaded is freed before by the op that waits for the copy, and made by its reload.
/// `shape` must agree with the Program.
std::vector<double> peak_saved_bytes(const Program& program, const ModelConfig& model, const Shape& shape,
                                     Implementation implementation);

}  // namespace stp

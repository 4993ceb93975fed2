// Bytes of saved tensors, op by op: what a runtime that keeps exactly the declared tensors holds at its peak.
#pragma once

#include <vector>

#include "stp/model/work.h"
#include "stp/program/program.h"

namespace stp {

/// Peak bytes of saved tensors on each pipeline rank, of one of its tensor-parallel ranks, in the order of
/// the rank's ops. A forward's tensors are there from its op on; I frees those that only it needs and makes
/// those that W needs; W's two parts free what each of them uses last. An op's own tensors are made before it
/// frees any. `shape` agrees with the Program.
std::vector<double> peak_saved_bytes(const Program& program, const ModelConfig& model, const Shape& shape,
                                     Implementation implementation);

}  // namespace stp

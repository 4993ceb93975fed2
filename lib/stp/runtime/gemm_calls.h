// The GEMMs that a run calls, by the model's table: known before its first step.
#pragma once

#include <string>
#include <vector>

#include "stp/device/kernel_arguments.h"
#include "stp/model/work.h"
#include "stp/program/program.h"

namespace stp {

/// How the runtime calls a GEMM of the table: x·wᵀ, dy·w, or dyᵀ·x, which is added to the gradient so far in
/// a type of its own. Its operands have sizes and no memory.
kernel::Gemm gemm_call(const Gemm& gemm, DType type);

struct UnitGemm {
  std::string op;  // the first that calls it: "mlp.F"
  Gemm gemm;
};
/// The GEMMs of a pipeline rank's ops, each once.
std::vector<UnitGemm> gemms_of_rank(const Program& program, int rank, const ModelConfig& model,
                                    const Shape& shape);

}  // namespace stp

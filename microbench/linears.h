// The linear layers of a model, as lib/stp/model declares their GEMMs.
#pragma once

#include <string>
#include <vector>

#include "machine.h"
#include "stp/model/work.h"
#include "suite.h"

namespace stp::microbench {

struct Linear {
  std::string name;
  Gemm forward;  // of one tensor-parallel rank
};
/// The linear layers of one layer and the head. InputError if tp does not divide the model.
std::vector<Linear> linears(const ModelConfig& model, int tokens, int tp);

/// If tp does not divide the model, adds a row that says so and returns true.
bool skip_unless_sharded(Suite& suite, const std::string& family, const ModelConfig& model, int tp);

/// Bytes of a GEMM's operands on `ranks` ranks.
double gemm_bytes(const Gemm& gemm, int ranks, DType type);
/// The GEMM on every rank's compute stream, with separate operands for each.
BenchEnv::Work gemm_work(BenchEnv& env, const Gemm& gemm);

}  // namespace stp::microbench

// The linear layers of a model, as lib/stp/model declares their products.
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
/// Of one layer and the head. InputError where tp does not divide the model.
std::vector<Linear> linears(const ModelConfig& model, int tokens, int tp);

/// Adds a row that says why, and returns true, where tp does not divide the model.
bool skip_unless_sharded(Suite& suite, const std::string& family, const ModelConfig& model, int tp);

/// What a product's operands take on so many ranks.
double gemm_bytes(const Gemm& gemm, int ranks, DType type);
/// The product on every rank's compute stream, operands of its own on each.
Machine::Work gemm_work(Machine& machine, const Gemm& gemm);

}  // namespace stp::microbench

// The linear layers of a model, as lib/model declares their products.
#pragma once

#include <string>
#include <vector>

#include "machine.h"
#include "stp/model/work.h"

namespace stp::microbench {

struct Linear {
  std::string name;
  Gemm forward;  // of one tensor-parallel rank
};
/// Of one layer and the head; empty where tp does not divide the model.
std::vector<Linear> linears(const ModelConfig& model, int tokens, int tp);

/// About what a product's operands take on so many ranks.
double gemm_bytes(const Gemm& gemm, int ranks);
/// The product on every rank's compute stream, operands of its own on each.
Machine::Work gemm_work(Machine& machine, const Gemm& gemm);

}  // namespace stp::microbench

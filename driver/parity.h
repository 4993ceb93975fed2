// Parity: whether the first step of a run equals the plain reference.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stp/report/record.h"
#include "stp/runtime/trainer.h"

namespace stp {

/// The parity of a run whose first step over `samples` gave this loss and these gradients. In bf16 also
/// trains one rank on the same samples, with the same backend and options except the world size.
Parity measure_parity(double loss, const std::map<std::string, std::vector<double>>& gradients,
                      const Training& training, const std::vector<TokenSample>& samples,
                      const std::string& backend, const BackendOptions& options);

/// Whether the parity of a run of that type is good. float64: 10⁻¹⁰. float32: 10⁻⁵. bf16: the loss within
/// 2⁻⁸, the rounding of one number; the gradient's error at most twice that of one rank, and below 0.5, since
/// a missing tensor has an error of 1.
bool parity_holds(const Parity& parity, const std::string& type);

}  // namespace stp

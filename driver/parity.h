// Whether a run trains like one rank: its first step against the plain reference.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stp/report/record.h"
#include "stp/runtime/trainer.h"

namespace stp {

/// Of a run whose first step was over `samples` and gave these. In bf16 one rank trains over the same samples
/// beside it, on the backend of that name and by its options, but for the size of the world.
Parity measure_parity(double loss, const std::map<std::string, std::vector<double>>& gradients,
                      const Training& training, const std::vector<TokenSample>& samples,
                      const std::string& backend, const BackendOptions& options);

/// Whether the parity of a run of that type is good. float64: 10⁻¹⁰. float32: 10⁻⁵. bf16: the loss within
/// 2⁻⁸, as far as one number is rounded; the gradient's error at most twice that of one rank, and below a
/// half, since a tensor that was lost has an error of 1.
bool parity_holds(const Parity& parity, const std::string& type);

}  // namespace stp

// A plain reference transformer: one rank, float64, no schedule, no blocking, no BLAS. It follows the
// formulas, independently of the runtime's kernels, and prefers clarity to speed. vision_encoder.h adds a
// vision encoder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/parameters.h"

namespace stp::reference {

/// Full row-major matrices by parameter_name(): "layers.3.attn.q.weight".
using Parameters = std::map<std::string, std::vector<double>>;

Parameters initial_parameters(const ModelConfig& model, const Initialisation& initialisation);

struct LossAndGradients {
  double loss;           // mean cross-entropy over all tokens of all samples, natural logarithm
  Parameters gradients;  // gradients of `loss`
};
LossAndGradients loss_and_gradients(const ModelConfig& model, const Parameters& parameters,
                                    const std::vector<TokenSample>& samples);
/// The same from the initial parameters. The result of a thread's last call is kept, because training with
/// several schedules asks for the same step again; the next call with other arguments replaces it.
const LossAndGradients& first_step(const ModelConfig& model, const Initialisation& initialisation,
                                   const std::vector<TokenSample>& samples);

/// The error of gradients: the maximum over tensors of ‖ours − exact‖ / max(‖exact‖, 10⁻³ · the largest
/// ‖exact‖ of any tensor), in Frobenius norms. Infinite if a tensor is missing, has another size, or holds
/// NaN.
double gradient_error(const Parameters& ours, const Parameters& exact);

}  // namespace stp::reference

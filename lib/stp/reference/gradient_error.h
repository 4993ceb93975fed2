// The error of gradients.
#pragma once

#include "stp/reference/transformer.h"

namespace stp::reference {

/// The largest over all tensors of ‖ours − exact‖ / max(‖exact‖, 10⁻³ · the largest ‖exact‖ of any tensor),
/// in Frobenius norms. Infinite where a tensor is missing, has another size, or holds NaN.
double gradient_error(const Parameters& ours, const Parameters& exact);

}  // namespace stp::reference

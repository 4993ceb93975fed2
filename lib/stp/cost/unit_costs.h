// Reads a scenario's unit costs.
#pragma once

#include "stp/base/json_input.h"
#include "stp/cost/cost_table.h"

namespace stp {

/// Reads a scenario's `costs.unit`: seconds ≥ 0, zero if left out. Keys are to_string(unit, pass), whose
/// value may be an array with one number for each pipeline rank, and `all_reduce`, `p2p`,
/// `gradient_reduce`, `offload`, `reload` and `vocabulary`. With context parallelism, attn.F and
/// attn.I are replaced by parts: attn.F_before, attn.F_core (one step), attn.F_after, and the same for I;
/// there is also `kv_exchange` or `all_to_all`.
CostTable unit_cost_table(JsonInput input, const Strategy& strategy = {});

}  // namespace stp

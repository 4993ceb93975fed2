// Seconds of a model on a cluster: the work in work.h at the rates of a hardware profile.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/cost/cost_table.h"
#include "stp/cost/job.h"

namespace stp {

/// The cost table of `job` on `machine`: a unit's GEMMs, attention, elementwise traffic and launches, one
/// after the other. `optimizer` and `gradient_reduce` follow from each rank's parameters (by
/// `layers_per_stage` and `placement`) and from the Program's `first_buckets`. Collectives cost what their
/// groups' locations imply; all ranks of a node with the same pipeline rank share its adapters
/// (group_span.h). The slowest tensor-parallel group of all counts, and the slowest data-parallel group of
/// the pipeline rank.
CostTable hardware_cost_table(const Job& job, const HardwareProfile& machine,
                              const std::vector<int>& layers_per_stage, const Placement& placement,
                              const std::vector<Bucket>& first_buckets = {});

}  // namespace stp

// Processes over MPI.
#pragma once

#include <memory>

#include "stp/processes/processes.h"

namespace stp {

/// Initialises MPI. Throws InputError if MPI has not `count` processes, or this build has no MPI.
std::unique_ptr<Processes> join_by_mpi(int count, double deadline_s);

}  // namespace stp

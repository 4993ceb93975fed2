#include "stp/base/error.h"
#include "stp/processes/mpi_processes.h"

namespace stp {

std::unique_ptr<Processes> join_by_mpi(int count, double) {
  throw InputError(
      "", "launcher",
      "started " + std::to_string(count) + " processes, and this build has no MPI to join them",
      "build where MPI is found (-D STP_MPI=ON), start them with torchrun, or start one process");
}

}  // namespace stp

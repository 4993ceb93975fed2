// What a launcher tells a process of a run of several: which rank it is, of how many, and where rank 0 waits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace stp {

struct ProcessPlace {
  int rank = 0, world_size = 1;
  int local_rank = 0;                 // on its node: the index of its device
  std::string address = "127.0.0.1";  // of rank 0
  uint16_t port = 0;                  // where rank 0 listens
  std::string run;                    // the launcher's word for this run; "" if it has none
};

/// The value of an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// The place that a launcher gave this process, read from the first of these that is there:
///   torchrun   RANK, WORLD_SIZE, LOCAL_RANK; TORCHELASTIC_RUN_ID
///   Open MPI   OMPI_COMM_WORLD_RANK, …_SIZE, …_LOCAL_RANK, …_LOCAL_SIZE; PMIX_NAMESPACE
///   Slurm      SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, in a step of srun; SLURM_NNODES, SLURM_JOB_ID
/// and MASTER_ADDR (this machine where the launcher says that there is no other) and STP_MASTER_PORT, else
/// MASTER_PORT, else 29500. torchrun's own agent mostly listens on MASTER_PORT itself: then it is the next
/// one. None if no launcher's rank is there. InputError that names the variable if one is missing or makes
/// no sense.
std::optional<ProcessPlace> place_from_environment(const Environment& environment);

/// InputError that names both if a launcher started more or fewer processes than there are ranks; `file` and
/// `field`: what says how many.
void check_world(int ranks, const ProcessPlace& place, const std::string& file = "",
                 const std::string& field = "parallel");

}  // namespace stp

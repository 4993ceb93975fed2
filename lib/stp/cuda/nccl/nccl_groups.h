// Groups, over NCCL, of ranks that each have a process and a GPU.
//
// A communicator is set up by threads of NCCL's own, while this one polls. NCCL (from 2.23 on) would also
// start a thread for each later call of this communicator, whose mode is fixed: so calls use its copy by
// ncclCommSplit. They block, and a watchdog watches them. The thread that issues work also checks for
// errors of NCCL's own threads whenever it waits (CudaRun::wait_until). All processes make the calls of all
// groups in one order, so no cycle of waits arises, whenever NCCL connects ranks.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "stp/cuda/cuda_run.h"
#include "stp/cuda/nccl/nccl_api.h"
#include "stp/cuda/nccl/nccl_tuning.h"
#include "stp/cuda/nccl/watchdog.h"
#include "stp/device/group.h"
#include "stp/processes/processes.h"

namespace stp::cuda {

/// This process's end of a communicator.
struct NcclComm {
  std::string name;  // "group tp of ranks 0, 1"
  int size = 1;
  ncclComm_t handle = nullptr;
  ncclComm_t set_up = nullptr;  // of which the handle becomes a copy; null after that
  std::string latest = {};      // the latest call, for errors
};

/// All groups of a process.
class NcclGroups {
 public:
  /// `run` and `processes` must outlive this. Throws InputError like nccl().
  NcclGroups(CudaRun& run, Processes& processes, NcclOptions options);
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;
  /// Call it after the device was synchronised and with no group in use. It finalises all communicators,
  /// together with the other processes. After a failure it aborts them, which ends waits on the GPU. If NCCL
  /// does not return within the deadline, the process ends with exit code 1.
  ~NcclGroups();

  /// The group `name` of world ranks, which are processes, this one included. All members call this, in one
  /// order. A group of one does not use NCCL.
  std::unique_ptr<Group> make_group(const std::string& name, const std::vector<int>& members, GroupUse use);
  /// The group's communicator, also for a group of one: for tests of NCCL itself.
  NcclComm& join(const std::string& name, const std::vector<int>& members, GroupUse use);

  /// Makes the call on its part's stream. Throws std::runtime_error that names call and group, and Cancelled.
  void carry_out(NcclComm& comm, const Call& call, int index);
  static ncclResult_t exchange(const NcclComm& comm, const Call& call, int index, cudaStream_t on);

 private:
  void check(ncclResult_t result, const NcclComm* comm, const std::string& what) const;
  /// Makes a blocking call, until NCCL has finished the call itself, not the GPU's work.
  template <typename Make>
  void watched(const NcclComm& comm, const std::string& what, Make make, double patience = 1);
  void set_up(NcclComm& comm, const ncclUniqueId& id, int index, const NcclTuning& tuning);
  /// Waits until NCCL has finished a call for comm.set_up.
  void settle(const NcclComm& comm, const std::string& what, ncclResult_t result);
  void probe(NcclComm& comm, int index, GroupUse use);
  void look();
  void finish();
  void abort();

  CudaRun& run_;
  Processes& processes_;
  const NcclOptions options_;
  int version_ = 0;
  std::vector<std::unique_ptr<NcclComm>> comms_;  // in the order of creation
  Watchdog watchdog_;
};

}  // namespace stp::cuda

// Groups of ranks that have a process and a GPU each, over NCCL.
//
// NCCL is called without blocking throughout: a call that is not under way at once is asked about until it
// is. The thread that issues work also watches what NCCL's own threads meet with, whenever it waits
// (CudaRun::wait_until). All processes make the calls of all groups in one order, so that none waits for
// another in a cycle, whatever NCCL connects when.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "stp/cuda/cuda_run.h"
#include "stp/cuda/nccl/nccl_api.h"
#include "stp/cuda/nccl/nccl_tuning.h"
#include "stp/device/group.h"
#include "stp/processes/processes.h"

namespace stp::cuda {

/// This process's end of a communicator.
struct NcclComm {
  std::string name;  // "group tp of ranks 0, 1"
  int size = 1;
  ncclComm_t handle = nullptr;
  std::string latest = {};  // the latest call, in words

  // Of all-reduces that go through a window (NcclTuning::window_bytes).
  void* window = nullptr;
  size_t window_bytes = 0;
  cudaStream_t window_stream = nullptr;  // the one that uses it; null: none yet
#ifdef STP_NCCL_WINDOWS
  ncclWindow_t window_handle = nullptr;
#endif
};

/// All groups of a process.
class NcclGroups {
 public:
  /// `run` and `processes` outlive this. Throws InputError if `options` asks for what this NCCL has not.
  NcclGroups(CudaRun& run, Processes& processes, NcclOptions options);
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;
  /// After the device was synchronised and with no group in use: finalises all communicators, together with
  /// the other processes; after a failure aborts them, so that whatever waits on the GPU ends. Where NCCL
  /// itself does not return from that within the deadline, the process ends with exit code 1.
  ~NcclGroups();

  /// The group `name` of world ranks, which are processes; this one's is among them. All members call this,
  /// in one order. In a group of one NCCL has no part.
  std::unique_ptr<Group> make_group(const std::string& name, const std::vector<int>& members, GroupUse use);
  /// Its communicator, also in a group of one: for tests of NCCL itself.
  NcclComm& join(const std::string& name, const std::vector<int>& members, GroupUse use);

  /// Makes the call on the stream of its part. Throws std::runtime_error that names call and group, and
  /// Cancelled.
  void carry_out(NcclComm& comm, const Call& call, int index);
  static ncclResult_t exchange(const NcclComm& comm, const Call& call, int index, cudaStream_t on);

 private:
  void check(ncclResult_t result, const NcclComm* comm, const std::string& what) const;
  /// Waits until NCCL is done with the call itself (not until the GPU is).
  void settle(const NcclComm& comm, const std::string& what, ncclResult_t result, double patience = 1);
  void make_window(NcclComm& comm, size_t bytes);
  void look();
  void finish();
  void abort();

  CudaRun& run_;
  Processes& processes_;
  const NcclOptions options_;
  int version_ = 0;
  std::vector<std::unique_ptr<NcclComm>> comms_;  // in the order of their making
};

}  // namespace stp::cuda

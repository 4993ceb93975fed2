// All NCCL communicators of a process: how they are founded, watched and ended. NCCL is called without
// blocking throughout, so that no call of it outlasts the run's deadline, and when anything fails anywhere
// all communicators are aborted, each once, so that whatever waits on the device ends.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "stp/cuda/nccl_api.h"
#include "stp/cuda/nccl_tuning.h"
#include "stp/device/communicator.h"
#include "stp/processes/rendezvous.h"

namespace stp::cuda {

/// What is asked of the device beside NCCL. Throws where the device fails.
struct NcclDevice {
  /// A mark behind all that was given to the stream so far; whether the stream has passed it. Null where the
  /// stream is captured into a graph: what is given to it is not for the device yet.
  std::function<std::shared_ptr<void>(cudaStream_t)> record;
  std::function<bool(void*)> passed;
  std::function<void(void* to, const void* from, size_t bytes, cudaStream_t)> copy;
  /// A stream of the session's own.
  std::function<cudaStream_t()> stream;
};
class CudaRun;
/// The CUDA runtime's, on the GPU of `run`, which outlives it.
NcclDevice cuda_runtime_for_nccl(const CudaRun& run);

ncclDataType_t nccl_type(DType type);
ncclRedOp_t nccl_reduce(Reduce reduce);

class NcclSession;

/// This process's end of a communicator. Calls are made where their stream's work is issued, by any thread;
/// `where` says for whom ("rank 3, tp, F0.1"). They throw CudaError that names the NCCL function, and
/// Cancelled once the run has failed. Buffers are the device's. A stream may be captured into a CUDA graph;
/// of the graph's launches the session knows nothing: that they end within the deadline is for who launches
/// them to see.
class NcclComm {
 public:
  [[nodiscard]] int size() const { return static_cast<int>(group_.members.size()); }
  [[nodiscard]] int index() const { return index_; }

  void all_reduce(const std::string& where, Reduce reduce, DType type, void* buffer, size_t count,
                  cudaStream_t stream);
  /// `count` elements of each member.
  void all_gather(const std::string& where, DType type, const void* in, void* out, size_t count,
                  cudaStream_t stream);
  /// `count` elements for each member.
  void reduce_scatter(const std::string& where, DType type, const void* in, void* out, size_t count,
                      cudaStream_t stream);
  void send(const std::string& where, DType type, const void* buffer, size_t count, int to,
            cudaStream_t stream);
  void receive(const std::string& where, DType type, void* buffer, size_t count, int from,
               cudaStream_t stream);

 private:
  friend class NcclSession;
  NcclComm(NcclSession& session, Invitation group, int index)
      : session_(session), group_(std::move(group)), index_(index) {}

  // A call that the device has not done yet.
  struct Pending {
    std::string text;
    std::shared_ptr<void> mark;
  };

  NcclSession& session_;
  const Invitation group_;
  const int index_;
  // Guarded by the session's mutex.
  ncclComm_t handle_ = nullptr;
  bool over_ = false;  // finalised or aborted: NCCL does not know the handle any more
  std::deque<Pending> pending_;
  std::string latest_;  // the latest call, in words
  // Of its founding, and of whoever issues on its one stream.
  void* window_ = nullptr;
  size_t window_bytes_ = 0;
  cudaStream_t window_stream_ = nullptr;
  bool windowed_ = false;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  ncclWindow_t window_handle_ = nullptr;
#endif
};

class NcclSession {
 public:
  /// `rendezvous` and `guard` outlive this. InputError if `options` asks for what this NCCL has not.
  NcclSession(NcclApi api, NcclDevice device, Rendezvous& rendezvous, RunGuard& guard, NcclOptions options);
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;
  /// After the device was synchronised and with no communicator in use: finalises all of them, together with
  /// the other processes; after a failure aborts what is not aborted yet. Where NCCL itself does not return
  /// from that within the run's deadline, the process ends with exit code 1.
  ~NcclSession();

  /// Founds a group. All members call this, each with its own `index`, and found the groups that they share
  /// in the same order. For transfers alone it has no window, whatever its tuning says. Throws Cancelled if
  /// the run fails: because the order or anything else differs among the members, or because NCCL does.
  std::shared_ptr<NcclComm> found(const std::string& name, const std::vector<int>& members, int index,
                                  GroupUse use = GroupUse::any);

  /// Of a group of two, which both call: has NCCL make its connection from the first to the second, and waits
  /// for it. NCCL would make it at the first transfer, where each host waits for the other's: hosts that come
  /// to their first transfers in different orders would wait for each other for ever.
  void connect(NcclComm& comm);

  /// On the device, in the stream's order.
  void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) const {
    device_.copy(to, from, bytes, stream);
  }

 private:
  friend class NcclComm;
  using Lock = std::unique_lock<std::mutex>;
  // Where in the source a call is made. (std::source_location is more than Clang 14 knows.)
  struct Place {
    const char* file;
    int line;
    static Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
      return {file, line};
    }
  };
  // One call of the NCCL function `name`.
  struct Call {
    const char* name;
    std::string what;  // "4096 bf16 in group tp of ranks 0, 1"
    std::string where;
    Place at;
    [[nodiscard]] std::string text() const;
  };

  void issue(NcclComm& comm, const Call& call, cudaStream_t stream, const std::function<ncclResult_t()>& run);
  void check(ncclResult_t result, const NcclComm* comm, const Call& call) const;
  /// Waits until NCCL is done with the call itself (not until the device is).
  void settle(Lock& lock, NcclComm& comm, const Call& call, ncclResult_t result);
  void make_window(Lock& lock, NcclComm& comm, const NcclTuning& tuning);
  void watch();
  void look(Lock& lock, NcclComm& comm);
  void abort_all(Lock& lock);
  void finish(Lock& lock);

  const NcclApi api_;
  const NcclDevice device_;
  Rendezvous& rendezvous_;
  RunGuard& guard_;
  const NcclOptions options_;
  int version_ = 0;

  std::mutex mutex_;  // held through every call of NCCL but for aborts
  std::condition_variable changed_;
  std::vector<std::shared_ptr<NcclComm>> comms_;  // in the order of their founding
  bool closing_ = false, watch_over_ = false;
  std::thread watchdog_;  // last: it uses all others
};

}  // namespace stp::cuda

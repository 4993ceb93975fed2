// An NCCL without devices, in place of lib/stp/cuda/nccl/nccl_api.cc, on the runtime of fake_cuda.h, for
// processes that are threads: its calls meet in the runtime's memory, whose streams go on in a random order
// and stand still until all members of a call have come to it. It records every call, compares the calls of
// the members with each other, and fails as the test demands.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace stp::testing_support {

/// One at a time.
class FakeNccl {
 public:
  struct Call {
    int process;       // by the thread that made it, or the communicator
    std::string name;  // "ncclAllReduce"
    int group;         // number of the communicator, in the order of the ids; −1: none
    size_t count = 0;
    int type = -1, op = -1, peer = -1;
    const void *in = nullptr, *out = nullptr;
    cudaStream_t stream = nullptr;
  };

  /// What goes wrong with a call.
  struct Trouble {
    ncclResult_t result = ncclSuccess;  // that it returns
    ncclResult_t async = ncclSuccess;   // that is found later, from the call on
    int in_progress = 0;                // of a set-up: questions answered "in progress"; −1: all
    bool never_ends = false;            // on the device
    bool never_returns = false;
  };

  FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;
  ~FakeNccl();

  /// The calling thread is that process from here on.
  static void be(int process);

  int version = NCCL_VERSION_CODE;
  std::function<Trouble(const Call&)> trouble;  // of collectives, sends and receives
  std::function<Trouble(int process)> init_trouble;
  std::atomic<bool> abort_hangs{false};

  [[nodiscard]] std::vector<Call> calls(int process);
  /// Those that are work of streams.
  [[nodiscard]] std::vector<Call> work(int process);
  [[nodiscard]] int64_t count(const std::string& name);
  [[nodiscard]] std::vector<ncclConfig_t> configs(int process);  // of communicators that are used

  /// What NCCL would have failed on: uses out of order or after the end, groups that do not close, calls of
  /// members that differ, and what was left standing. After all is over.
  [[nodiscard]] std::vector<std::string> problems();

 private:
  friend struct FakeNcclFunctions;
  enum class State { live, finalized, destroyed, aborted };
  struct Comm {
    int process, group, size, index;
    bool blocks = false;  // made by ncclCommSplit; the others only make these
    State state = State::live;
    ncclResult_t async = ncclSuccess;
    int in_progress = 0;
    Comm* copy = nullptr;             // that ncclCommSplit makes
    ncclComm_t* copied_to = nullptr;  // once all have come
    std::vector<Call> collectives = {};
    std::map<int, std::vector<Call>> sent = {}, received = {};  // by peer
  };
  struct Meeting;
  struct Grouped {
    Call call;
    int size, index;  // of the communicator
  };

  void problem(const std::string& text) { problems_.push_back(text); }
  void check_live(const Comm& comm, const std::string& name);
  ncclResult_t init(ncclComm_t* handle, int ranks, const ncclUniqueId& id, int index,
                    const ncclConfig_t& config);
  ncclResult_t split(ncclComm_t handle, int key, ncclComm_t* copy, const ncclConfig_t& config);
  ncclResult_t ask(ncclComm_t handle, ncclResult_t* state);
  ncclResult_t end(ncclComm_t handle, const std::string& name, State state);
  ncclResult_t call(ncclComm_t handle, Call made);
  void carry_out(const std::vector<Grouped>& group);
  std::shared_ptr<Meeting> come(const Call& call, int size, int index);
  void compare(int group, const std::vector<const Comm*>& ends);

  std::mutex mutex_;
  int ids_ = 0;
  std::vector<Call> calls_;
  std::vector<std::unique_ptr<Comm>> comms_;  // kept to the end: what comes late is noticed
  std::map<int, std::vector<ncclConfig_t>> configs_;
  std::map<std::thread::id, int> depth_;
  std::map<std::thread::id, std::vector<Grouped>> grouped_;  // what waits for the end of a thread's group
  std::map<std::tuple<int, int, int, int>, int> next_;
  std::map<std::tuple<int, int, int, int>, std::shared_ptr<Meeting>> meetings_;
  std::vector<std::string> problems_;
};

}  // namespace stp::testing_support

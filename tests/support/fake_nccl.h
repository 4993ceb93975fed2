// A stand-in for NCCL and the device's streams, of all ranks in one process: it records every call, holds the
// ranks' calls against each other, and misbehaves as it is told.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "stp/cuda/nccl_session.h"

namespace stp::testing_support {

using namespace cuda;

class FakeNccl {
 public:
  struct Call {
    int rank;          // in the world, by the table that it was made through
    std::string name;  // "ncclAllReduce"
    int group;         // number of the communicator, in the order of the ids; −1: none
    size_t count = 0;
    int type = -1, op = -1, peer = -1;
    const void *in = nullptr, *out = nullptr;
    cudaStream_t stream = nullptr;
  };

  /// What goes wrong, and where: for calls of that rank (−1: any) through communicators of that size (0:
  /// any).
  struct Trouble {
    int rank = -1, size = 0;
    ncclResult_t result = ncclSuccess;  // that calls return
    ncclResult_t async = ncclSuccess;   // that is found later, from the call on
    int in_progress = 0;                // asks after a call that are answered "in progress"; −1: all
    bool never_ends = false;            // on the device
  };

  int version = NCCL_VERSION_CODE;
  std::function<Trouble(const Call&)> trouble;  // of collectives, sends and receives
  std::function<Trouble(int rank)> init_trouble;
  /// Does what a call that goes well asks for: of the member `index` of `size`. Without it, nobody does.
  std::function<void(const Call&, int size, int index)> carry_out;
  std::atomic<bool> abort_hangs{false};

  /// The functions as `rank` of the world sees them.
  NcclApi api(int rank) {
    NcclApi a;
    a.get_version = [this](int* v) {
      *v = version;
      return ncclSuccess;
    };
    a.get_error_string = [](ncclResult_t r) {
      return r == ncclRemoteError ? "remote error" : r == ncclSystemError ? "system error" : "internal error";
    };
    a.get_last_error = [](ncclComm_t) { return "the last words"; };
    a.get_unique_id = [this, rank](ncclUniqueId* id) {
      const std::lock_guard lock(mutex_);
      note({rank, "ncclGetUniqueId", ids_});
      std::memset(id->internal, 0x5A, sizeof id->internal);
      std::memcpy(id->internal, &ids_, sizeof ids_);
      ++ids_;
      return ncclSuccess;
    };
    a.comm_init_rank_config = [this, rank](ncclComm_t* comm, int ranks, ncclUniqueId id, int index,
                                           ncclConfig_t* config) {
      return init(rank, comm, ranks, id, index, *config);
    };
    a.comm_get_async_error = [this](ncclComm_t comm, ncclResult_t* state) { return ask(comm, state); };
    a.comm_finalize = [this](ncclComm_t comm) { return end(comm, "ncclCommFinalize", State::finalized); };
    a.comm_destroy = [this](ncclComm_t comm) { return end(comm, "ncclCommDestroy", State::destroyed); };
    a.comm_abort = [this](ncclComm_t comm) {
      while (abort_hangs) std::this_thread::yield();
      return end(comm, "ncclCommAbort", State::aborted);
    };
    a.group_start = [this] {
      const std::lock_guard lock(mutex_);
      ++depth_[std::this_thread::get_id()];
      return ncclSuccess;
    };
    a.group_end = [this] {
      const std::lock_guard lock(mutex_);
      if (--depth_[std::this_thread::get_id()] < 0) problem("a group ends that did not start");
      return ncclSuccess;
    };
    a.all_reduce = [this](const void* in, void* out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                          cudaStream_t s) { return call(c, "ncclAllReduce", n, t, op, -1, in, out, s); };
    a.all_gather = [this](const void* in, void* out, size_t n, ncclDataType_t t, ncclComm_t c,
                          cudaStream_t s) { return call(c, "ncclAllGather", n, t, -1, -1, in, out, s); };
    a.reduce_scatter = [this](const void* in, void* out, size_t n, ncclDataType_t t, ncclRedOp_t op,
                              ncclComm_t c, cudaStream_t s) {
      return call(c, "ncclReduceScatter", n, t, op, -1, in, out, s);
    };
    a.send = [this](const void* in, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
      return call(c, "ncclSend", n, t, -1, peer, in, nullptr, s);
    };
    a.recv = [this](void* out, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
      return call(c, "ncclRecv", n, t, -1, peer, nullptr, out, s);
    };
    a.mem_alloc = [this](void** at, size_t bytes) {
      const std::lock_guard lock(mutex_);
      memory_.push_back(std::make_unique<std::byte[]>(bytes));
      *at = memory_.back().get();
      ++windows_held_;
      return ncclSuccess;
    };
    a.mem_free = [this](void*) {
      const std::lock_guard lock(mutex_);
      --windows_held_;
      return ncclSuccess;
    };
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
    a.comm_window_register = [this](ncclComm_t comm, void* at, size_t bytes, ncclWindow_t* window, int) {
      *window = reinterpret_cast<ncclWindow_t>(at);
      return call(comm, "ncclCommWindowRegister", bytes, -1, -1, -1, at, at, nullptr);
    };
    a.comm_window_deregister = [this](ncclComm_t comm, ncclWindow_t) {
      return call(comm, "ncclCommWindowDeregister", 0, -1, -1, -1, nullptr, nullptr, nullptr);
    };
#endif
    return a;
  }

  /// The device of `rank`: a mark is passed unless what stands before it on the stream never ends.
  NcclDevice device(int rank) {
    NcclDevice d;
    d.record = [this, rank](cudaStream_t stream) {
      const std::lock_guard lock(mutex_);
      return std::make_shared<bool>(stuck_.count({rank, stream}) == 0);
    };
    d.passed = [](void* mark) { return *static_cast<bool*>(mark); };
    d.copy = [this, rank](void* to, const void* from, size_t bytes, cudaStream_t stream) {
      const std::lock_guard lock(mutex_);
      note({rank, "copy", -1, bytes, -1, -1, -1, from, to, stream});
    };
    d.stream = [] { return cudaStream_t{}; };
    return d;
  }

  [[nodiscard]] std::vector<Call> calls(int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<Call> of;
    for (const Call& each : calls_)
      if (each.rank == rank) of.push_back(each);
    return of;
  }
  /// Names of the rank's calls.
  [[nodiscard]] std::vector<std::string> names(int rank) {
    std::vector<std::string> all;
    for (const Call& each : calls(rank)) all.push_back(each.name);
    return all;
  }
  [[nodiscard]] int64_t count(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return std::count_if(calls_.begin(), calls_.end(), [&](const Call& each) { return each.name == name; });
  }
  [[nodiscard]] std::vector<ncclConfig_t> configs(int rank) {
    const std::lock_guard lock(mutex_);
    return configs_[rank];
  }

  /// What NCCL would have choked on: uses out of order or after the end, groups that do not close, calls of
  /// members that differ, and what was left standing. After all is over.
  [[nodiscard]] std::vector<std::string> problems() {
    const std::lock_guard lock(mutex_);
    for (const auto& [thread, depth] : depth_)
      if (depth != 0) problem("a group does not end");
    if (windows_held_ != 0) problem("windows are not freed");
    std::map<int, std::vector<const Comm*>> groups;
    for (const auto& comm : comms_) {
      groups[comm->group].push_back(comm.get());
      if (comm->state == State::live || comm->state == State::finalized)
        problem("rank " + std::to_string(comm->rank) + " left a communicator standing");
    }
    for (const auto& [group, ends] : groups) compare(group, ends);
    return problems_;
  }

 private:
  enum class State { live, finalized, destroyed, aborted };
  struct Comm {
    int rank, group, size, index;
    State state = State::live;
    ncclResult_t async = ncclSuccess;
    int in_progress = 0;
    bool blocking = true;
    std::vector<Call> collectives;
    std::map<int, std::vector<Call>> sent, received;  // by peer
  };

  void problem(const std::string& text) { problems_.push_back(text); }
  void note(const Call& call) { calls_.push_back(call); }
  Comm& of(ncclComm_t handle) { return *reinterpret_cast<Comm*>(handle); }

  ncclResult_t init(int rank, ncclComm_t* handle, int ranks, const ncclUniqueId& id, int index,
                    const ncclConfig_t& config) {
    const std::lock_guard lock(mutex_);
    int group = -1;
    std::memcpy(&group, id.internal, sizeof group);
    if (group < 0 || group >= ids_ || id.internal[sizeof group] != 0x5A) problem("no id of this library");
    if (config.blocking != 0) problem("a communicator that blocks");
    configs_[rank].push_back(config);
    note({rank, "ncclCommInitRankConfig", group});
    const Trouble what = init_trouble ? init_trouble(rank) : Trouble{};
    if (what.result != ncclSuccess) return what.result;
    comms_.push_back(std::make_unique<Comm>(Comm{rank, group, ranks, index}));
    comms_.back()->in_progress = what.in_progress;
    comms_.back()->async = what.async;
    for (const auto& comm : comms_)
      if (comm.get() != comms_.back().get() && comm->group == group &&
          (comm->size != ranks || comm->index == index))
        problem("members of one communicator do not fit");
    *handle = reinterpret_cast<ncclComm_t>(comms_.back().get());
    return ncclInProgress;
  }

  ncclResult_t ask(ncclComm_t handle, ncclResult_t* state) {
    const std::lock_guard lock(mutex_);
    Comm& comm = of(handle);
    check_live(comm, "ncclCommGetAsyncError");
    const auto come = std::count_if(comms_.begin(), comms_.end(),
                                    [&](const auto& other) { return other->group == comm.group; });
    *state = comm.async != ncclSuccess                   ? comm.async
             : come < comm.size || comm.in_progress != 0 ? ncclInProgress
                                                         : ncclSuccess;
    if (comm.in_progress > 0) --comm.in_progress;
    return ncclSuccess;
  }

  void check_live(const Comm& comm, const std::string& name) {
    if (comm.state != State::live && !(comm.state == State::finalized && name != "ncclAllReduce"))
      problem(name + " after the end of the communicator, by rank " + std::to_string(comm.rank));
  }

  ncclResult_t end(ncclComm_t handle, const std::string& name, State state) {
    const std::lock_guard lock(mutex_);
    Comm& comm = of(handle);
    check_live(comm, name);
    if (state == State::destroyed && comm.state != State::finalized) problem("destroyed, but not finalised");
    if (state == State::aborted && version >= NCCL_VERSION(2, 22, 3) &&
        depth_[std::this_thread::get_id()] != 1)
      problem("an abort outside a group");
    comm.state = state;
    note({comm.rank, name, comm.group});
    if (state == State::finalized) comm.in_progress = 2;
    return state == State::finalized ? ncclInProgress : ncclSuccess;
  }

  ncclResult_t call(ncclComm_t handle, const std::string& name, size_t count, int type, int op, int peer,
                    const void* in, const void* out, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    Comm& comm = of(handle);
    check_live(comm, "ncclAllReduce");
    if (comm.in_progress != 0) problem(name + " while the communicator is busy with the call before");
    if (depth_[std::this_thread::get_id()] != 0) problem(name + " in a group");
    const Call made{comm.rank, name, comm.group, count, type, op, peer, in, out, stream};
    note(made);
    if (peer >= 0)
      (name == "ncclSend" ? comm.sent : comm.received)[peer].push_back(made);
    else
      comm.collectives.push_back(made);
    Trouble what = trouble ? trouble(made) : Trouble{};
    if ((what.rank >= 0 && what.rank != comm.rank) || (what.size > 0 && what.size != comm.size)) what = {};
    if (what.never_ends) stuck_.insert({comm.rank, stream});
    comm.async = what.async;
    comm.in_progress = what.in_progress;
    if (what.result != ncclSuccess) return what.result;
    if (carry_out) carry_out(made, comm.size, comm.index);
    return what.in_progress != 0 ? ncclInProgress : ncclSuccess;
  }

  static std::tuple<std::string, size_t, int, int> essence(const Call& call) {
    return {call.peer >= 0 ? "transfer" : call.name, call.count, call.type, call.op};
  }
  void compare(int group, const std::vector<const Comm*>& ends) {
    // A run that is aborted ends its members at different places: as far as both came, they agree.
    const bool aborted =
        std::any_of(ends.begin(), ends.end(), [](const Comm* end) { return end->state == State::aborted; });
    const auto differ = [&](const std::vector<Call>& a, const std::vector<Call>& b) {
      const size_t common = std::min(a.size(), b.size());
      return (!aborted && a.size() != b.size()) ||
             !std::equal(a.begin(), a.begin() + common, b.begin(),
                         [](const Call& x, const Call& y) { return essence(x) == essence(y); });
    };
    for (const Comm* end : ends) {
      if (differ(end->collectives, ends[0]->collectives))
        problem("the members of communicator " + std::to_string(group) + " call in different orders");
      for (const Comm* other : ends) {
        const auto sent = end->sent.find(other->index);
        const auto received = other->received.find(end->index);
        const std::vector<Call> none;
        if (differ(sent == end->sent.end() ? none : sent->second,
                   received == other->received.end() ? none : received->second))
          problem("sends and receives of communicator " + std::to_string(group) + " do not fit");
      }
    }
  }

  std::mutex mutex_;
  int ids_ = 0, windows_held_ = 0;
  std::vector<Call> calls_;
  std::vector<std::unique_ptr<Comm>> comms_;  // kept to the end: what comes late is noticed
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::map<int, std::vector<ncclConfig_t>> configs_;
  std::map<std::thread::id, int> depth_;
  std::set<std::pair<int, cudaStream_t>> stuck_;
  std::vector<std::string> problems_;
};

}  // namespace stp::testing_support

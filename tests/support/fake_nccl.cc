#include "support/fake_nccl.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "stp/cuda/nccl/nccl_api.h"
#include "stp/device/bfloat16.h"
#include "support/fake_cuda.h"

namespace stp {
namespace testing_support {
namespace {

FakeNccl* current = nullptr;
thread_local int this_process = 0;

// The numbers of communicators that only make others begin here.
constexpr int kSetUps = 1 << 16;

size_t bytes_of_type(int type) { return type == ncclFloat64 ? 8 : type == ncclBfloat16 ? 2 : 4; }

template <typename T>
void reduce(const std::vector<FakeNccl::Call>& calls, bool scatter) {
  const size_t each = calls[0].count, whole = scatter ? each * calls.size() : each;
  for (size_t i = 0; i < whole; ++i) {
    auto total = static_cast<Wide<T>>(static_cast<const T*>(calls[0].in)[i]);
    for (size_t member = 1; member < calls.size(); ++member) {
      const auto value = static_cast<Wide<T>>(static_cast<const T*>(calls[member].in)[i]);
      total = calls[0].op == ncclSum ? total + value : std::max(total, value);
    }
    const auto put = [&](const FakeNccl::Call& call, size_t at) {
      static_cast<T*>(const_cast<void*>(call.out))[at] = T(total);
    };
    if (scatter)
      put(calls[i / each], i % each);
    else
      for (const auto& call : calls) put(call, i);
  }
}

void meet(const std::vector<FakeNccl::Call>& calls) {
  const FakeNccl::Call& first = calls[0];
  const size_t bytes = first.count * bytes_of_type(first.type);
  if (first.name == "ncclSend") {
    std::memcpy(const_cast<void*>(calls[1].out), first.in, bytes);
  } else if (first.name == "ncclAllGather") {
    for (const auto& to : calls)
      for (size_t from = 0; from < calls.size(); ++from)
        std::memcpy(static_cast<std::byte*>(const_cast<void*>(to.out)) + from * bytes, calls[from].in, bytes);
  } else {
    const bool scatter = first.name == "ncclReduceScatter";
    if (first.type == ncclFloat32) reduce<float>(calls, scatter);
    if (first.type == ncclFloat64) reduce<double>(calls, scatter);
    if (first.type == ncclBfloat16) reduce<Bfloat16>(calls, scatter);
  }
}

}  // namespace

// Of one call; used by streams alone, one at a time.
struct FakeNccl::Meeting {
  explicit Meeting(size_t members) : calls(members) {}
  std::vector<Call> calls;
  size_t come = 0;
  bool done = false;
};

FakeNccl::FakeNccl() { current = this; }
FakeNccl::~FakeNccl() { current = nullptr; }
void FakeNccl::be(int process) { this_process = process; }

std::vector<FakeNccl::Call> FakeNccl::calls(int process) {
  const std::lock_guard lock(mutex_);
  std::vector<Call> of;
  for (const Call& each : calls_)
    if (each.process == process) of.push_back(each);
  return of;
}

std::vector<FakeNccl::Call> FakeNccl::work(int process) {
  std::vector<Call> of = calls(process);
  std::erase_if(of, [](const Call& call) { return call.stream == nullptr; });
  return of;
}

int64_t FakeNccl::count(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return std::count_if(calls_.begin(), calls_.end(), [&](const Call& each) { return each.name == name; });
}

std::vector<ncclConfig_t> FakeNccl::configs(int process) {
  const std::lock_guard lock(mutex_);
  return configs_[process];
}

std::vector<std::string> FakeNccl::problems() {
  const std::lock_guard lock(mutex_);
  for (const auto& [thread, depth] : depth_)
    if (depth != 0) problem("a group does not end");
  std::map<int, std::vector<const Comm*>> groups;
  for (const auto& comm : comms_) {
    groups[comm->group].push_back(comm.get());
    if (comm->state == State::live || comm->state == State::finalized)
      problem("process " + std::to_string(comm->process) + " left a communicator standing");
  }
  for (const auto& [group, ends] : groups) compare(group, ends);
  return problems_;
}

void FakeNccl::check_live(const Comm& comm, const std::string& name) {
  if (comm.state != State::live && !(comm.state == State::finalized && name != "work"))
    problem(name + " after the end of the communicator, by process " + std::to_string(comm.process));
}

ncclResult_t FakeNccl::init(ncclComm_t* handle, int ranks, const ncclUniqueId& id, int index,
                            const ncclConfig_t& config) {
  const std::lock_guard lock(mutex_);
  int group = -1;
  std::memcpy(&group, id.internal, sizeof group);
  if (group < 0 || group >= ids_ || id.internal[sizeof group] != 0x5A) problem("no id of this library");
  if (config.blocking != 0) problem("a set-up that blocks");
  calls_.push_back({this_process, "ncclCommInitRankConfig", group});
  const Trouble what = init_trouble ? init_trouble(this_process) : Trouble{};
  if (what.result != ncclSuccess) return what.result;
  comms_.push_back(std::make_unique<Comm>(Comm{this_process, kSetUps + group, ranks, index}));
  comms_.back()->in_progress = what.in_progress;
  comms_.back()->async = what.async;
  for (const auto& comm : comms_)
    if (comm.get() != comms_.back().get() && comm->group == comms_.back()->group &&
        (comm->size != ranks || comm->index == index))
      problem("members of one communicator do not fit");
  *handle = reinterpret_cast<ncclComm_t>(comms_.back().get());
  return ncclInProgress;
}

// The copies of one communicator's members have the number of their id.
ncclResult_t FakeNccl::split(ncclComm_t handle, int key, ncclComm_t* copy, const ncclConfig_t& config) {
  const std::lock_guard lock(mutex_);
  Comm& comm = *reinterpret_cast<Comm*>(handle);
  check_live(comm, "work");
  if (comm.in_progress != 0 || key != comm.index) problem("a copy of what is not made, or of another member");
  if (config.blocking != 1) problem("a communicator whose calls start threads");
  configs_[comm.process].push_back(config);
  calls_.push_back({comm.process, "ncclCommSplit", comm.group - kSetUps});
  comms_.push_back(std::make_unique<Comm>(Comm{comm.process, comm.group - kSetUps, comm.size, key, true}));
  comm.copy = comms_.back().get();
  comm.copied_to = copy;
  comm.in_progress = 2;
  *copy = nullptr;
  return ncclInProgress;
}

ncclResult_t FakeNccl::ask(ncclComm_t handle, ncclResult_t* state) {
  const std::lock_guard lock(mutex_);
  Comm& comm = *reinterpret_cast<Comm*>(handle);
  check_live(comm, "ncclCommGetAsyncError");
  const auto come = std::count_if(comms_.begin(), comms_.end(), [&](const auto& other) {
    return other->group == comm.group && (comm.copy == nullptr || other->copy != nullptr);
  });
  *state = comm.async != ncclSuccess                   ? comm.async
           : come < comm.size || comm.in_progress != 0 ? ncclInProgress
                                                       : ncclSuccess;
  if (comm.in_progress > 0) --comm.in_progress;
  if (*state == ncclSuccess && comm.copied_to != nullptr)
    *std::exchange(comm.copied_to, nullptr) = reinterpret_cast<ncclComm_t>(comm.copy);
  return ncclSuccess;
}

ncclResult_t FakeNccl::end(ncclComm_t handle, const std::string& name, State state) {
  const std::lock_guard lock(mutex_);
  Comm& comm = *reinterpret_cast<Comm*>(handle);
  check_live(comm, name);
  if (state == State::destroyed && comm.state != State::finalized) problem("destroyed, but not finalised");
  if (state == State::aborted && version >= NCCL_VERSION(2, 22, 3) && depth_[std::this_thread::get_id()] != 1)
    problem("an abort outside a group");
  comm.state = state;
  calls_.push_back(
      {comm.process, comm.blocks || state == State::aborted ? name : "set-up: " + name, comm.group});
  if (comm.blocks || state != State::finalized) return ncclSuccess;
  comm.in_progress = 2;
  return ncclInProgress;
}

ncclResult_t FakeNccl::call(ncclComm_t handle, Call made) {
  std::unique_lock lock(mutex_);
  Comm& comm = *reinterpret_cast<Comm*>(handle);
  check_live(comm, "work");
  if (!comm.blocks) problem(made.name + " of a communicator that starts a thread for it");
  const bool grouped = depth_[std::this_thread::get_id()] != 0;
  std::vector<Grouped>& group = grouped_[std::this_thread::get_id()];
  if (grouped && made.peer < 0) problem(made.name + " in a group");
  made.process = comm.process;
  made.group = comm.group;
  calls_.push_back(made);
  if (made.peer >= 0)
    (made.name == "ncclSend" ? comm.sent : comm.received)[made.peer].push_back(made);
  else
    comm.collectives.push_back(made);
  const Trouble what = trouble ? trouble(made) : Trouble{};
  comm.async = what.async;
  if (what.never_returns) {
    lock.unlock();
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (what.result != ncclSuccess) return what.result;
  if (what.never_ends)
    fake_cuda::launch_when(
        made.stream, [] { return false; }, [] {});
  else if (grouped)
    group.push_back({made, comm.size, comm.index});
  else if (made.stream != nullptr)
    carry_out({{made, comm.size, comm.index}});
  return ncclSuccess;
}

// All of a group come before any of them waits.
void FakeNccl::carry_out(const std::vector<Grouped>& group) {
  std::vector<std::shared_ptr<Meeting>> meetings;
  for (const auto& [call, size, index] : group) meetings.push_back(come(call, size, index));
  for (size_t i = 0; i < group.size(); ++i)
    fake_cuda::launch_when(
        group[i].call.stream, [meeting = meetings[i]] { return meeting->done; }, [] {});
}

std::shared_ptr<FakeNccl::Meeting> FakeNccl::come(const Call& call, int size, int index) {
  // Of transfers each pair and direction counts its own; of collectives all are of one sequence.
  const bool transfer = call.peer >= 0, sends = call.name == "ncclSend";
  const int from = !transfer ? -1
                   : sends   ? index
                             : call.peer,
            to = !transfer ? -1
                 : sends   ? call.peer
                           : index;
  const int number = next_[{call.group, from, to, index}]++;
  std::shared_ptr<Meeting>& meeting = meetings_[{call.group, from, to, number}];
  if (!meeting) meeting = std::make_shared<Meeting>(transfer ? 2 : size);
  const size_t member = !transfer ? static_cast<size_t>(index) : sends ? 0 : 1;
  fake_cuda::launch(call.stream, [meeting, member, call] {
    meeting->calls[member] = call;
    if (++meeting->come == meeting->calls.size()) {
      meet(meeting->calls);
      meeting->done = true;
    }
  });
  return meeting;
}

void FakeNccl::compare(int group, const std::vector<const Comm*>& ends) {
  // A run that is aborted ends its members at different places: as far as both came, they agree.
  const bool aborted =
      std::any_of(ends.begin(), ends.end(), [](const Comm* end) { return end->state == State::aborted; });
  const auto same = [](const Call& x, const Call& y) {
    return (x.peer >= 0 || x.name == y.name) && x.count == y.count && x.type == y.type && x.op == y.op;
  };
  const auto differ = [&](const std::vector<Call>& a, const std::vector<Call>& b) {
    const auto common = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
    return (!aborted && a.size() != b.size()) || !std::equal(a.begin(), a.begin() + common, b.begin(), same);
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

struct FakeNcclFunctions {
  static cuda::NcclApi api() {
    cuda::NcclApi a{};
    set_communicators(a);
    set_calls(a);
    return a;
  }

 private:
  static void set_communicators(cuda::NcclApi& a) {
    using State = FakeNccl::State;
    a.ncclGetVersion = [](int* version) {
      *version = current->version;
      return ncclSuccess;
    };
    a.ncclGetErrorString = [](ncclResult_t result) {
      return result == ncclRemoteError   ? "remote error"
             : result == ncclSystemError ? "system error"
                                         : "internal error";
    };
    a.ncclGetLastError = [](ncclComm_t) { return "the last words"; };
    a.ncclGetUniqueId = [](ncclUniqueId* id) {
      const std::lock_guard lock(current->mutex_);
      current->calls_.push_back({this_process, "ncclGetUniqueId", current->ids_});
      std::memset(id->internal, 0x5A, sizeof id->internal);
      std::memcpy(id->internal, &current->ids_, sizeof current->ids_);
      ++current->ids_;
      return ncclSuccess;
    };
    a.ncclCommInitRankConfig = [](ncclComm_t* comm, int ranks, ncclUniqueId id, int index,
                                  ncclConfig_t* config) {
      return current->init(comm, ranks, id, index, *config);
    };
    a.ncclCommSplit = [](ncclComm_t comm, int, int key, ncclComm_t* copy, ncclConfig_t* config) {
      return current->split(comm, key, copy, *config);
    };
    a.ncclCommGetAsyncError = [](ncclComm_t comm, ncclResult_t* state) { return current->ask(comm, state); };
    a.ncclCommFinalize = [](ncclComm_t comm) {
      return current->end(comm, "ncclCommFinalize", State::finalized);
    };
    a.ncclCommDestroy = [](ncclComm_t comm) {
      return current->end(comm, "ncclCommDestroy", State::destroyed);
    };
    a.ncclCommAbort = [](ncclComm_t comm) {
      while (current->abort_hangs) std::this_thread::yield();
      return current->end(comm, "ncclCommAbort", State::aborted);
    };
  }
  static void set_calls(cuda::NcclApi& a) {
    a.ncclGroupStart = [] {
      const std::lock_guard lock(current->mutex_);
      ++current->depth_[std::this_thread::get_id()];
      return ncclSuccess;
    };
    a.ncclGroupEnd = [] {
      const std::lock_guard lock(current->mutex_);
      if (--current->depth_[std::this_thread::get_id()] < 0)
        current->problem("a group ends that did not start");
      current->carry_out(std::exchange(current->grouped_[std::this_thread::get_id()], {}));
      return ncclSuccess;
    };
    a.ncclAllReduce = [](const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                         ncclComm_t comm, cudaStream_t stream) {
      return current->call(comm, {-1, "ncclAllReduce", -1, n, type, op, -1, in, out, stream});
    };
    a.ncclAllGather = [](const void* in, void* out, size_t n, ncclDataType_t type, ncclComm_t comm,
                         cudaStream_t stream) {
      return current->call(comm, {-1, "ncclAllGather", -1, n, type, -1, -1, in, out, stream});
    };
    a.ncclReduceScatter = [](const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                             ncclComm_t comm, cudaStream_t stream) {
      return current->call(comm, {-1, "ncclReduceScatter", -1, n, type, op, -1, in, out, stream});
    };
    a.ncclSend = [](const void* in, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream) {
      return current->call(comm, {-1, "ncclSend", -1, n, type, -1, peer, in, nullptr, stream});
    };
    a.ncclRecv = [](void* out, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream) {
      return current->call(comm, {-1, "ncclRecv", -1, n, type, -1, peer, nullptr, out, stream});
    };
  }
};

}  // namespace testing_support

const cuda::NcclApi& cuda::nccl() {
  static const NcclApi api = testing_support::FakeNcclFunctions::api();
  return api;
}

}  // namespace stp

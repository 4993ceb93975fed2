#include "stp/cuda/nccl/nccl_groups.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <stdexcept>
#include <utility>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/device/backend.h"
#include "stp/emulation/link_emulation.h"

namespace stp::cuda {
namespace {

/// The first NCCL version that runs several aborts together inside a group.
constexpr int kGroupedAborts = NCCL_VERSION(2, 22, 3);
/// Deadlines for the creation of a communicator: the first one also starts NCCL.
constexpr double kSetUpPatience = 10;

ncclConfig_t config_of(const NcclTuning& tuning) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  if (tuning.min_ctas > 0) config.minCTAs = tuning.min_ctas;
  if (tuning.max_ctas > 0) config.maxCTAs = tuning.max_ctas;
  if (tuning.cga_cluster_size >= 0) config.cgaClusterSize = tuning.cga_cluster_size;
  return config;
}

ncclDataType_t nccl_type(DType type) {
  static constexpr std::array types{ncclFloat32, ncclFloat64, ncclBfloat16, ncclInt32};
  return types[static_cast<size_t>(type)];
}

ncclRedOp_t nccl_reduce(Reduce reduce) { return reduce == Reduce::sum ? ncclSum : ncclMax; }

void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  STP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

class NcclGroup : public Group {
 public:
  /// `comm`: null in a group of one.
  NcclGroup(NcclGroups& groups, NcclComm* comm, std::string name, const std::vector<int>& members, int rank)
      : Group(std::move(name), members, local_members(members, {rank})), groups_(groups), comm_(comm) {}

 private:
  void carry_out(const Call& call) override {
    if (comm_ != nullptr) return groups_.carry_out(*comm_, call, local().front());
    const Part& part = call.parts.front();
    cuda_stream(*part.stream).give([&](cudaStream_t on) {
      copy(address(part.out), address(part.in), part.in.bytes(), on);
    });
  }

  NcclGroups& groups_;
  NcclComm* const comm_;
};

}  // namespace

NcclGroups::NcclGroups(CudaRun& run, Processes& processes, NcclOptions options)
    : run_(run), processes_(processes), options_(std::move(options)), watchdog_(run.guard) {
  check(nccl().ncclGetVersion(&version_), nullptr, "ncclGetVersion");
  run_.while_waiting([this] { look(); });
}

NcclGroups::~NcclGroups() {
  try {
    if (std::uncaught_exceptions() > 0)
      run_.guard.fail("process " + std::to_string(processes_.index()) + " ended early");
    run_.guard.check();
    finish();
  } catch (const Cancelled&) {  // the failing rank has reported the cause
  } catch (const std::exception& error) {
    run_.guard.fail(error.what());
  }
  run_.while_waiting(nullptr);
  if (run_.guard.failed()) abort();
}

void NcclGroups::check(ncclResult_t result, const NcclComm* comm, const std::string& what) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string text = what + ": NCCL: " + nccl().ncclGetErrorString(result);
  const char* last = nccl().ncclGetLastError(comm == nullptr ? nullptr : comm->handle);
  if (last != nullptr && *last != '\0') text += ": " + std::string(last);
  throw std::runtime_error(text);
}

template <typename Make>
void NcclGroups::watched(const NcclComm& comm, const std::string& what, Make make, double patience) {
  const Watchdog::Call call(watchdog_, comm.latest, patience);
  check(make(), &comm, what);
}

void NcclGroups::settle(const NcclComm& comm, const std::string& what, ncclResult_t result) {
  check(result, &comm, what);
  const auto settled = [&] {
    ncclResult_t state = ncclSuccess;
    check(nccl().ncclCommGetAsyncError(comm.set_up, &state), &comm, what);
    check(state, &comm, what);
    return state != ncclInProgress;
  };
  run_.wait_until(
      settled, [&] { return what + " does not get under way"; }, kSetUpPatience);
}

// Checks for errors of NCCL's own threads.
void NcclGroups::look() {
  for (const auto& comm : comms_) {
    if (comm->set_up != nullptr) continue;  // settle() asks
    try {
      ncclResult_t state = ncclSuccess;
      check(nccl().ncclCommGetAsyncError(comm->handle, &state), comm.get(), comm->latest);
      check(state, comm.get(), comm->latest);
    } catch (const std::exception& error) {
      return run_.guard.fail(error.what());
    }
  }
}

std::unique_ptr<Group> NcclGroups::make_group(const std::string& name, const std::vector<int>& members,
                                              GroupUse use) {
  NcclComm* const comm = members.size() > 1 ? &join(name, members, use) : nullptr;
  if (comm != nullptr && options_.probes)
    probe(*comm, local_members(members, {processes_.index()}).at(0), use);
  return std::make_unique<NcclGroup>(*this, comm, name, members, processes_.index());
}

NcclComm& NcclGroups::join(const std::string& name, const std::vector<int>& members, GroupUse use) {
  run_.make_current();
  NcclTuning tuning = options_.of(name);
  if (use == GroupUse::transfers && tuning.max_ctas == 0)
    tuning.max_ctas = std::max(kLinkCtas, tuning.min_ctas);
  auto comm = std::make_unique<NcclComm>();
  comm->size = static_cast<int>(members.size());
  comm->name = "group " + name + " of ranks";
  for (const int member : members)
    comm->name += (member == members.front() ? " " : ", ") + std::to_string(member);
  comm->latest =
      "rank " + std::to_string(processes_.index()) + ", host: ncclCommInitRankConfig of " + comm->name;

  ncclUniqueId id{};
  if (members.front() == processes_.index())
    check(nccl().ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId for " + comm->name);
  const std::string received = processes_.broadcast(std::string(id.internal, sizeof id.internal), members);
  if (received.size() != sizeof id.internal)
    throw std::runtime_error(comm->name + ": its first member sent no NCCL id");
  std::memcpy(id.internal, received.data(), sizeof id.internal);

  NcclComm& made = *comms_.emplace_back(std::move(comm));  // first, so that a failure aborts it
  set_up(made, id, local_members(members, {processes_.index()}).at(0), tuning);
  return made;
}

// The first communicator, which only makes the second, takes as little as it can.
void NcclGroups::set_up(NcclComm& comm, const ncclUniqueId& id, int index, const NcclTuning& tuning) {
  ncclConfig_t first = NCCL_CONFIG_INITIALIZER, config = config_of(tuning);
  first.blocking = 0;
  first.minCTAs = first.maxCTAs = 1;
  const ncclResult_t result = nccl().ncclCommInitRankConfig(&comm.set_up, comm.size, id, index, &first);
  if (comm.set_up == nullptr) {
    const std::unique_ptr<NcclComm> never_made = std::move(comms_.back());
    comms_.pop_back();
    check(result, nullptr, never_made->latest);
    throw std::runtime_error(never_made->latest + ": NCCL made no communicator");
  }
  settle(comm, comm.latest, result);
  settle(comm, comm.latest, nccl().ncclCommSplit(comm.set_up, 0, index, &comm.handle, &config));
  if (comm.handle == nullptr) throw std::runtime_error(comm.latest + ": NCCL made no communicator");
  settle(comm, comm.latest, nccl().ncclCommFinalize(comm.set_up));
  check(nccl().ncclCommDestroy(std::exchange(comm.set_up, nullptr)), nullptr, comm.latest);
}

// NCCL connects ranks at their first calls: these have the patience of set-up, and numbers that are known.
void NcclGroups::probe(NcclComm& comm, int index, GroupUse use) {
  comm.latest = "rank " + std::to_string(processes_.index()) + ", host: the first call of " + comm.name;
  const cudaStream_t on = run_.side_stream();
  const bool sums = use != GroupUse::transfers;
  const int next = (index + 1) % comm.size, last = (index + comm.size - 1) % comm.size;
  constexpr size_t kBytes = 2 * sizeof(float);
  auto* const host = static_cast<float*>(run_.pinned(kBytes));
  host[0] = host[1] = static_cast<float>(index);
  void* memory = nullptr;
  STP_CUDA(cudaMallocAsync(&memory, kBytes, on));
  auto* const numbers = static_cast<float*>(memory);
  STP_CUDA(cudaMemcpyAsync(numbers, host, kBytes, cudaMemcpyHostToDevice, on));
  if (sums) {
    watched(
        comm, comm.latest,
        [&] { return nccl().ncclAllReduce(numbers, numbers, 1, ncclFloat32, ncclSum, comm.handle, on); },
        kSetUpPatience);
  } else {
    check(nccl().ncclGroupStart(), &comm, comm.latest);
    check(nccl().ncclSend(numbers + 1, 1, ncclFloat32, next, comm.handle, on), &comm, comm.latest);
    check(nccl().ncclRecv(numbers, 1, ncclFloat32, last, comm.handle, on), &comm, comm.latest);
    watched(comm, comm.latest, nccl().ncclGroupEnd, kSetUpPatience);
  }
  STP_CUDA(cudaMemcpyAsync(host, numbers, kBytes, cudaMemcpyDeviceToHost, on));
  STP_CUDA(cudaFreeAsync(memory, on));
  run_.wait_until([&] { return is_idle(on); }, [&] { return comm.latest + " is not done"; }, kSetUpPatience);
  const int expected = sums ? comm.size * (comm.size - 1) / 2 : last;
  if (host[0] != static_cast<float>(expected))
    throw std::runtime_error(comm.latest + " gives " + shown("%g", host[0]) + ", not " +
                             std::to_string(expected));
}

// A transfer or an all-to-all. A member starts all its messages at once: if each sent first, all would wait
// for another to receive.
ncclResult_t NcclGroups::exchange(const NcclComm& comm, const Call& call, int index, cudaStream_t on) {
  struct Message {
    int peer;
    Tensor tensor;
    bool sent;
  };
  std::vector<Message> messages;
  const auto add = [&](int peer, const Tensor& tensor, bool sent) {
    if (tensor && tensor.elements() > 0) messages.push_back({peer, tensor, sent});
  };
  const Part& part = call.parts.front();
  if (call.kind == CallKind::transfer) {
    add((index + 1) % comm.size, part.in, true);
    add((index + comm.size - 1) % comm.size, part.out, false);
  } else {
    for (int peer = 0; peer < comm.size; ++peer) {
      const Tensor in = part.sent_to(peer, comm.size), out = part.received_from(peer, comm.size);
      if (peer == index && in.elements() > 0) copy(address(out), address(in), in.bytes(), on);
      if (peer == index) continue;
      add(peer, in, true);
      add(peer, out, false);
    }
  }
  ncclResult_t result = ncclSuccess;
  const auto keep = [&](ncclResult_t each) {
    if (result == ncclSuccess || result == ncclInProgress) result = each;
  };
  if (messages.size() > 1) keep(nccl().ncclGroupStart());
  for (const auto& [peer, tensor, sent] : messages) {
    const auto count = static_cast<size_t>(tensor.elements());
    const ncclDataType_t type = nccl_type(tensor.type);
    keep(sent ? nccl().ncclSend(address(tensor), count, type, peer, comm.handle, on)
              : nccl().ncclRecv(address(tensor), count, type, peer, comm.handle, on));
  }
  if (messages.size() > 1) keep(nccl().ncclGroupEnd());
  return result;
}

void NcclGroups::carry_out(NcclComm& comm, const Call& call, int index) {
  const Part& part = call.parts.front();
  const Tensor &in = part.in, &out = part.out;
  CudaStream& stream = cuda_stream(*part.stream);
  const std::string what = call.text() + " in " + comm.name;
  const auto count = [](const Tensor& tensor) { return static_cast<size_t>(tensor.elements()); };
  const ncclDataType_t type = nccl_type(in ? in.type : out.type);
  stream.give(
      [&](cudaStream_t on) {
        comm.latest = stream.where() + ": " + what;
        const auto make = [&](const auto& call_nccl) { watched(comm, what, call_nccl); };
        switch (call.kind) {
          case CallKind::all_reduce:
            return make([&] {
              return nccl().ncclAllReduce(address(in), address(in), count(in), type, nccl_reduce(call.reduce),
                                          comm.handle, on);
            });
          case CallKind::all_gather:
            return make([&] {
              return nccl().ncclAllGather(address(in), address(out), count(in), type, comm.handle, on);
            });
          case CallKind::reduce_scatter:
            return make([&] {
              return nccl().ncclReduceScatter(address(in), address(out), count(out), type,
                                              nccl_reduce(call.reduce), comm.handle, on);
            });
          case CallKind::all_to_all:
          case CallKind::transfer:
            return make([&] { return exchange(comm, call, index, on); });
        }
      },
      what);
}

// In the order of creation, which all processes have: none waits in one for a process in the next.
void NcclGroups::finish() {
  for (const auto& comm : comms_) {
    comm->latest = "the end of " + comm->name;
    watched(*comm, comm->latest, [&] { return nccl().ncclCommFinalize(comm->handle); });
  }
  const std::vector<std::unique_ptr<NcclComm>> ended = std::move(comms_);
  comms_.clear();
  for (const auto& comm : ended) {
    const Watchdog::Call destroys(watchdog_, comm->latest, 1);
    check(nccl().ncclCommDestroy(comm->handle), nullptr, comm->latest);
  }
}

// Aborts all together if NCCL can: the abort of one may wait for a kernel of another. Errors of abandoned
// communicators are ignored.
void NcclGroups::abort() {
  if (comms_.empty()) return;
  const std::future<void> ended = std::async(std::launch::async, [this] {
    const bool grouped = version_ >= kGroupedAborts;
    set_current_gpu(run_.gpu());
    if (grouped) static_cast<void>(nccl().ncclGroupStart());
    for (const auto& comm : comms_)
      static_cast<void>(nccl().ncclCommAbort(comm->set_up != nullptr ? comm->set_up : comm->handle));
    if (grouped) static_cast<void>(nccl().ncclGroupEnd());
  });
  if (ended.wait_for(run_.guard.deadline()) == std::future_status::ready) return;
  std::fprintf(stderr, "NCCL does not return from ending its communicators; the process is ended. %s\n",
               run_.guard.failure().c_str());
  std::_Exit(1);
}

}  // namespace stp::cuda

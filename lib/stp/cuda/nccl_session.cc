#include "stp/cuda/nccl_session.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

#include "stp/base/error.h"
#include "stp/cuda/cuda_check.h"

namespace stp::cuda {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPollInterval{10};          // of the watchdog
constexpr std::chrono::microseconds kSettle{200};  // of who waits for NCCL itself
/// An error that another rank caused: that rank's own words are waited for so long.
constexpr milliseconds kGrace{1000};
constexpr int kGroupedAborts = NCCL_VERSION(2, 22, 3);  // before, a group of aborts is no group

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

std::string elements(DType type, size_t count) { return std::to_string(count) + " " + to_string(type); }

ncclConfig_t config_of(const NcclTuning& tuning) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (tuning.min_ctas > 0) config.minCTAs = tuning.min_ctas;
  if (tuning.max_ctas > 0) config.maxCTAs = tuning.max_ctas;
  if (tuning.cga_cluster_size >= 0) config.cgaClusterSize = tuning.cga_cluster_size;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  if (tuning.policy == CtaPolicy::efficiency) config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
  if (tuning.policy == CtaPolicy::zero) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
  return config;
}

void check_tuning(const std::string& group, const NcclTuning& tuning, int version) {
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw InputError("", "nccl" + (group.empty() ? "" : "." + group), problem, remedy);
  };
  constexpr int kMostCtas = 64, kMostCluster = 8;
  if (tuning.min_ctas < 0 || tuning.max_ctas < 0 || tuning.min_ctas > kMostCtas ||
      tuning.max_ctas > kMostCtas || (tuning.max_ctas > 0 && tuning.min_ctas > tuning.max_ctas))
    refuse(tuning.text() + ": no range of CTAs", "use 1 to 64, or 0 for NCCL's choice");
  if (tuning.cga_cluster_size < -1 || tuning.cga_cluster_size > kMostCluster)
    refuse(tuning.text() + ": no size of a cluster", "use 0 to 8, or -1 for NCCL's choice");
  const int needed = tuning.policy == CtaPolicy::zero ? NCCL_VERSION(2, 28, 3)
                     : tuning.policy != CtaPolicy::standard || tuning.window_bytes > 0
                         ? NCCL_VERSION(2, 27, 3)
                         : 0;
  if (version < needed || NCCL_VERSION_CODE < needed)
    refuse(tuning.text() + " needs NCCL " + version_text(needed) + "; here is " + version_text(version),
           "leave it out");
}

}  // namespace

ncclDataType_t nccl_type(DType type) {
  switch (type) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
  }
  throw std::logic_error("a type that NCCL does not know");
}

ncclRedOp_t nccl_reduce(Reduce reduce) { return reduce == Reduce::sum ? ncclSum : ncclMax; }

std::string NcclSession::Call::text() const {
  return where + ": " + name + " of " + what + " (" + file_name(at.file) + ":" + std::to_string(at.line) +
         ")";
}

NcclSession::NcclSession(NcclApi api, NcclDevice device, Rendezvous& rendezvous, RunGuard& guard,
                         NcclOptions options)
    : api_(std::move(api)),
      device_(std::move(device)),
      rendezvous_(rendezvous),
      guard_(guard),
      options_(std::move(options)) {
  check(api_.get_version(&version_), nullptr, {"ncclGetVersion", "", "set-up", Place::here()});
  check_tuning("", options_.standard, version_);
  for (const auto& [group, tuning] : options_.groups) check_tuning(group, tuning, version_);
  watchdog_ = std::thread([this] { watch(); });
}

NcclSession::~NcclSession() {
  Lock lock(mutex_);
  if (std::uncaught_exceptions() > 0)
    guard_.fail("rank " + std::to_string(rendezvous_.place().rank) + " ended early");
  try {
    finish(lock);
  } catch (const Cancelled&) {  // whoever failed has said why
  } catch (const std::exception& error) {
    guard_.fail(error.what());
  }
  closing_ = true;
  changed_.notify_all();
  if (!changed_.wait_for(lock, guard_.deadline(), [this] { return watch_over_; })) {
    std::fprintf(stderr, "NCCL does not return from ending its communicators; the process is ended. %s\n",
                 guard_.failure().c_str());
    std::_Exit(1);
  }
  lock.unlock();
  watchdog_.join();
  for (const auto& comm : comms_)
    if (comm->window_ != nullptr) static_cast<void>(api_.mem_free(comm->window_));
}

void NcclSession::check(ncclResult_t result, const NcclComm* comm, const Call& call) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string words = api_.get_error_string(result);
  const char* last = api_.get_last_error(comm == nullptr ? nullptr : comm->handle_);
  if (last != nullptr && *last != '\0') words += ": " + std::string(last);
  if (!call.what.empty()) words += ", of " + call.what;
  throw CudaError(call.name, words, call.at.file, call.at.line);
}

void NcclSession::settle(Lock& lock, NcclComm& comm, const Call& call, ncclResult_t result) {
  ncclResult_t state = result;
  const auto settled = [&] {
    if (comm.over_) throw Cancelled();
    check(api_.comm_get_async_error(comm.handle_, &state), &comm, call);
    check(state, &comm, call);
    return state != ncclInProgress;
  };
  check(state, &comm, call);
  if (state != ncclInProgress) return;
  // Mostly it is a matter of microseconds.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (settled()) return;
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  guard_.wait(
      lock, changed_, RunGuard::WaitFor::peer, settled,
      [&] { return call.text() + " does not get under way"; }, kSettle);
}

void NcclSession::issue(NcclComm& comm, const Call& call, cudaStream_t stream,
                        const std::function<ncclResult_t()>& run) {
  Lock lock(mutex_);
  guard_.check();
  if (comm.over_) throw Cancelled();
  comm.latest_ = call.text();
  settle(lock, comm, call, run());
  if (auto mark = device_.record(stream)) comm.pending_.push_back({comm.latest_, std::move(mark)});
}

std::shared_ptr<NcclComm> NcclSession::found(const std::string& name, const std::vector<int>& members,
                                             int index, GroupUse use) {
  const NcclTuning& tuning = options_.of(name);
  Invitation group{name, members, "NCCL " + version_text(version_) + ", " + tuning.text(), ""};
  const std::string where = "rank " + std::to_string(rendezvous_.place().rank) + ", host";
  const auto call = [&](const char* function, Place at = Place::here()) {
    return Call{function, group.group(), where, at};
  };
  ncclUniqueId id{};
  if (index == 0) {
    const Lock lock(mutex_);
    check(api_.get_unique_id(&id), nullptr, call("ncclGetUniqueId"));
    group.text.assign(id.internal, sizeof id.internal);
  }
  const std::vector<std::string> texts = rendezvous_.meet(group);
  if (texts.at(0).size() != sizeof id.internal)
    throw std::runtime_error(group.group() + ": its first member sent no NCCL id");
  std::memcpy(id.internal, texts[0].data(), sizeof id.internal);

  Lock lock(mutex_);
  guard_.check();
  auto comm = std::shared_ptr<NcclComm>(new NcclComm(*this, group, index));
  ncclConfig_t config = config_of(tuning);
  const Call init = call("ncclCommInitRankConfig");
  const ncclResult_t result = api_.comm_init_rank_config(&comm->handle_, comm->size(), id, index, &config);
  if (comm->handle_ != nullptr) comms_.push_back(comm);  // first, so that a failure aborts it
  settle(lock, *comm, init, result);
  if (tuning.window_bytes > 0 && comm->size() > 1 && use != GroupUse::transfers)
    make_window(lock, *comm, tuning);
  guard_.progress();
  return comm;
}

void NcclSession::connect(NcclComm& comm) {
  if (comm.size() != 2) throw std::logic_error(comm.group_.group() + " is no link: it has not two members");
  const std::string where = "rank " + std::to_string(rendezvous_.place().rank) + ", host";
  constexpr size_t kBytes = 16;
  void* buffer = nullptr;
  {
    const Lock lock(mutex_);
    check(
        api_.mem_alloc(&buffer, kBytes), &comm,
        {"ncclMemAlloc", std::to_string(kBytes) + " bytes for " + comm.group_.group(), where, Place::here()});
  }
  const cudaStream_t stream = device_.stream();
  if (comm.index() == 0)
    comm.send(where, DType::i32, buffer, 1, 1, stream);
  else
    comm.receive(where, DType::i32, buffer, 1, 0, stream);
  Lock lock(mutex_);
  guard_.wait(
      lock, changed_, RunGuard::WaitFor::peer, [&] { return comm.pending_.empty(); },
      [&] { return where + " waits for the first transfer in " + comm.group_.group(); }, kSettle);
  guard_.check();  // after a failure the buffer is left as it is: who frees it may wait for the device
  check(api_.mem_free(buffer), &comm, {"ncclMemFree", "", where, Place::here()});
}

void NcclSession::make_window(Lock& lock, NcclComm& comm, const NcclTuning& tuning) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  const std::string what = std::to_string(tuning.window_bytes) + " bytes for " + comm.group_.group();
  const std::string where = "rank " + std::to_string(rendezvous_.place().rank) + ", host";
  check(api_.mem_alloc(&comm.window_, tuning.window_bytes), &comm,
        {"ncclMemAlloc", what, where, Place::here()});
  const Call call{"ncclCommWindowRegister", what, where, Place::here()};
  settle(lock, comm, call,
         api_.comm_window_register(comm.handle_, comm.window_, tuning.window_bytes, &comm.window_handle_,
                                   NCCL_WIN_COLL_SYMMETRIC));
  comm.window_bytes_ = tuning.window_bytes;
#else
  static_cast<void>(lock);
  static_cast<void>(comm);
  static_cast<void>(tuning);
#endif
}

void NcclSession::watch() {
  Lock lock(mutex_);
  std::optional<RunGuard::Idle> idle;
  while (!closing_) {
    changed_.wait_for(lock, kPollInterval);
    const NcclComm* waiting = nullptr;
    try {
      const std::vector<std::shared_ptr<NcclComm>> comms = comms_;
      for (const auto& comm : comms) {
        if (guard_.failed()) break;
        look(lock, *comm);
        if (waiting == nullptr && !comm->pending_.empty()) waiting = comm.get();
      }
      if (waiting == nullptr || !idle)
        idle.emplace(guard_);
      else if (idle->time() > guard_.deadline())
        guard_.fail_idle(waiting->pending_.front().text + " has not ended", guard_.deadline());
    } catch (const std::exception& error) {
      guard_.fail(error.what());
    }
    if (guard_.failed()) abort_all(lock);
  }
  if (guard_.failed()) abort_all(lock);
  watch_over_ = true;
  changed_.notify_all();
}

// What the device has done, and what NCCL's own threads have met with.
void NcclSession::look(Lock& lock, NcclComm& comm) {
  if (comm.over_ || comm.latest_.empty()) return;
  while (!comm.pending_.empty() && device_.passed(comm.pending_.front().mark.get())) {
    comm.pending_.pop_front();
    guard_.progress();
  }
  ncclResult_t state = ncclSuccess;
  ncclResult_t result = api_.comm_get_async_error(comm.handle_, &state);
  if (result == ncclSuccess) result = state;
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string text = comm.pending_.empty() ? comm.latest_ : comm.pending_.front().text;
  text += std::string(": ") + api_.get_error_string(result);
  if (const char* last = api_.get_last_error(comm.handle_); last != nullptr && *last != '\0')
    text += ": " + std::string(last);
  if (result == ncclRemoteError || result == ncclSystemError) {
    const auto until = std::chrono::steady_clock::now() + kGrace;
    while (!guard_.failed() && !closing_ && std::chrono::steady_clock::now() < until)
      changed_.wait_for(lock, kPollInterval);
  }
  guard_.fail(text);
}

// Together where NCCL can: the end of one may wait for a kernel of another.
void NcclSession::abort_all(Lock& lock) {
  std::vector<ncclComm_t> handles;
  for (const auto& comm : comms_) {
    comm->pending_.clear();
    if (!std::exchange(comm->over_, true)) handles.push_back(comm->handle_);
  }
  if (handles.empty()) return;
  changed_.notify_all();
  lock.unlock();
  const bool grouped = version_ >= kGroupedAborts;
  // Nothing is to be done about errors of what is given up.
  if (grouped) static_cast<void>(api_.group_start());
  for (const ncclComm_t handle : handles) static_cast<void>(api_.comm_abort(handle));
  if (grouped) static_cast<void>(api_.group_end());
  lock.lock();
}

// In the order of their founding, which is the same everywhere, and first all of them begin to end: no
// process waits in one for another that waits in the next.
void NcclSession::finish(Lock& lock) {
  guard_.check();
  const auto call = [&](const NcclComm& comm, const char* function, Place at = Place::here()) {
    return Call{function, comm.group_.group(), "rank " + std::to_string(rendezvous_.place().rank) + ", host",
                at};
  };
  std::vector<ncclResult_t> results;
  for (const auto& comm : comms_) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
    if (comm->window_ != nullptr) {
      const Call deregister = call(*comm, "ncclCommWindowDeregister");
      settle(lock, *comm, deregister, api_.comm_window_deregister(comm->handle_, comm->window_handle_));
    }
#endif
    results.push_back(api_.comm_finalize(comm->handle_));
    check(results.back(), comm.get(), call(*comm, "ncclCommFinalize"));
  }
  for (size_t i = 0; i < comms_.size(); ++i)
    settle(lock, *comms_[i], call(*comms_[i], "ncclCommFinalize"), results[i]);
  for (const auto& comm : comms_) {
    comm->over_ = true;
    check(api_.comm_destroy(comm->handle_), nullptr, call(*comm, "ncclCommDestroy"));
  }
}

void NcclComm::all_reduce(const std::string& where, Reduce reduce, DType type, void* buffer, size_t count,
                          cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  void* const at = bytes <= window_bytes_ ? window_ : buffer;
  if (at != buffer && std::exchange(window_stream_, stream) != stream && windowed_)
    throw std::logic_error(group_.group() + " has one window, and is used on two streams");
  windowed_ = windowed_ || at != buffer;
  if (at != buffer) session_.device_.copy(at, buffer, bytes, stream);
  session_.issue(
      *this,
      {"ncclAllReduce", elements(type, count) + " in " + group_.group(), where, NcclSession::Place::here()},
      stream, [&] {
        return session_.api_.all_reduce(at, at, count, nccl_type(type), nccl_reduce(reduce), handle_, stream);
      });
  if (at != buffer) session_.device_.copy(buffer, at, bytes, stream);
}

void NcclComm::all_gather(const std::string& where, DType type, const void* in, void* out, size_t count,
                          cudaStream_t stream) {
  session_.issue(
      *this,
      {"ncclAllGather", elements(type, count) + " in " + group_.group(), where, NcclSession::Place::here()},
      stream, [&] { return session_.api_.all_gather(in, out, count, nccl_type(type), handle_, stream); });
}

void NcclComm::reduce_scatter(const std::string& where, DType type, const void* in, void* out, size_t count,
                              cudaStream_t stream) {
  session_.issue(*this,
                 {"ncclReduceScatter", elements(type, count) + " in " + group_.group(), where,
                  NcclSession::Place::here()},
                 stream, [&] {
                   return session_.api_.reduce_scatter(in, out, count, nccl_type(type), ncclSum, handle_,
                                                       stream);
                 });
}

void NcclComm::send(const std::string& where, DType type, const void* buffer, size_t count, int to,
                    cudaStream_t stream) {
  session_.issue(
      *this,
      {"ncclSend",
       elements(type, count) + " to rank " + std::to_string(group_.members.at(to)) + " in " + group_.group(),
       where, NcclSession::Place::here()},
      stream, [&] { return session_.api_.send(buffer, count, nccl_type(type), to, handle_, stream); });
}

void NcclComm::receive(const std::string& where, DType type, void* buffer, size_t count, int from,
                       cudaStream_t stream) {
  session_.issue(*this,
                 {"ncclRecv",
                  elements(type, count) + " from rank " + std::to_string(group_.members.at(from)) + " in " +
                      group_.group(),
                  where, NcclSession::Place::here()},
                 stream,
                 [&] { return session_.api_.recv(buffer, count, nccl_type(type), from, handle_, stream); });
}

}  // namespace stp::cuda

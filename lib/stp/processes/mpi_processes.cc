// Processes over MPI.

#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <thread>

#include "stp/base/error.h"
#include "stp/processes/processes.h"

namespace stp {
namespace {

using namespace std::chrono_literals;

/// Largest size of one message: MPI counts in int.
constexpr size_t kPiece = size_t{1} << 30;
/// A tag of data contains the number of the exchange between the two processes, and the number of its call.
/// Both numbers wrap around; no process is that far ahead of another.
constexpr uint64_t kExchanges = 1 << 13, kCalls = 1 << 10;
constexpr int kTextTag = kExchanges * kCalls;  // beyond the tags of data
/// The interval of progress reports among working processes.
constexpr auto kProgressInterval = 20ms;

/// Ends this process if MPI waits for the others for longer than `most`.
class TimeLimit {
 public:
  TimeLimit(const char* call, std::chrono::duration<double> most)
      : thread_([call, most](const std::stop_token& stop) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any stopped;
          if (stopped.wait_for(lock, stop, most, [&] { return stop.stop_requested(); })) return;
          std::fprintf(stderr, "stp: the other processes did not come to %s for %g s\n", call, most.count());
          std::_Exit(1);
        }) {}

 private:
  std::jthread thread_;
};

/// One mutex guards all calls of MPI (MPI_THREAD_SERIALIZED). Only the first and the last call wait. Errors
/// end all processes, by MPI itself.
class MpiProcesses final : public Processes {
 public:
  MpiProcesses(int launched, double deadline_s);
  MpiProcesses(const MpiProcesses&) = delete;
  MpiProcesses& operator=(const MpiProcesses&) = delete;
  ~MpiProcesses() override;

  [[noreturn]] void abort(const std::string& why, int code) override;

 private:
  class MpiPending;
  enum class Way { send, receive };

  void transfer(Way way, const Message& message);
  void send(int to, const std::string& text) override;
  std::string receive(int from) override;
  std::unique_ptr<Pending> start(const std::vector<uint64_t>& number_with, uint64_t call,
                                 std::span<const Message> sends, std::span<const Message> receives) override;
  /// Call before every call of MPI. Throws std::runtime_error if messages were given up.
  std::unique_lock<std::mutex> enter();
  void share_progress();

  const std::chrono::duration<double> patience_;
  std::mutex mutex_;
  // Messages were given up. MPI may still write to their memory, so it is not called any more.
  std::atomic<bool> given_up_{false};
  std::atomic<bool> ending_{false}, all_ending_{false};
  std::thread progress_thread_;
};

MpiProcesses::MpiProcesses(int launched, double deadline_s) : patience_(kPatience * deadline_s) {
  const TimeLimit limit("MPI_Init", patience_);
  int threads = 0, index = 0, count = 0, index_on_node = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  MPI_Comm_rank(MPI_COMM_WORLD, &index);
  set_place({index, count});
  if (count != launched) {
    MPI_Finalize();
    throw InputError(
        "", "launcher",
        "started " + std::to_string(launched) + " processes, but MPI knows of " + std::to_string(count),
        "start with mpirun of the MPI that this build has, or with srun --mpi=pmix");
  }
  int has_limit = 0;
  const int* largest_tag = nullptr;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest_tag), &has_limit);
  if (threads < MPI_THREAD_SERIALIZED || has_limit == 0 || *largest_tag < kTextTag)
    abort("this MPI allows too few threads, or too few tags", 1);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, index, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &index_on_node);
  MPI_Comm_free(&node);
  set_place({index, count, index_on_node});
  progress_thread_ = std::thread([this] { share_progress(); });
}

MpiProcesses::~MpiProcesses() {
  if (given_up_ || std::uncaught_exceptions() > 0) abort("ended while others may wait for it", 1);
  ending_ = true;
  for (Idle idle(progress()); !all_ending_; std::this_thread::sleep_for(1ms))
    if (idle.time() > patience_) abort(nothing_moved("waits for the others to end", patience_), 1);
  progress_thread_.join();
  const TimeLimit limit("MPI_Finalize", patience_);
  MPI_Finalize();
}

void MpiProcesses::abort(const std::string& why, int code) {
  report_failure(why);
  const std::lock_guard lock(mutex_);
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

std::unique_lock<std::mutex> MpiProcesses::enter() {
  std::unique_lock lock(mutex_);
  if (given_up_) throw std::runtime_error("messages to other processes were given up");
  return lock;
}

bool test(std::vector<MPI_Request>& requests) {
  int all = 0;
  MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE);
  return all != 0;
}

// ---- messages ----

class MpiProcesses::MpiPending : public Pending {
 public:
  explicit MpiPending(MpiProcesses& all) : all_(all) {}
  MpiPending(const MpiPending&) = delete;
  MpiPending& operator=(const MpiPending&) = delete;
  ~MpiPending() override {
    const std::lock_guard lock(all_.mutex_);
    if (!done_) all_.given_up_ = true;
  }

  void start(Way way, const Message& message, int tag) {
    const auto lock = all_.enter();
    for (size_t begin = 0; begin < message.count; begin += kPiece) {
      std::byte* const bytes = message.bytes + begin;
      const int count = static_cast<int>(std::min(kPiece, message.count - begin));
      MPI_Request& request = requests_.emplace_back();
      if (way == Way::send)
        MPI_Isend(bytes, count, MPI_BYTE, message.process, tag, MPI_COMM_WORLD, &request);
      else
        MPI_Irecv(bytes, count, MPI_BYTE, message.process, tag, MPI_COMM_WORLD, &request);
      processes_.push_back(message.process);
    }
  }
  bool done() override {
    const auto lock = all_.enter();
    return done_ = done_ || test(requests_);
  }
  [[nodiscard]] std::vector<int> missing() const override {
    const auto lock = all_.enter();
    std::set<int> missing;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
      if (done == 0) missing.insert(processes_[i]);
    }
    return {missing.begin(), missing.end()};
  }

 private:
  MpiProcesses& all_;
  std::vector<MPI_Request> requests_;
  std::vector<int> processes_;  // by request
  bool done_ = false;
};

// No communicator is needed.
std::unique_ptr<Pending> MpiProcesses::start(const std::vector<uint64_t>& number_with, uint64_t call,
                                             std::span<const Message> sends,
                                             std::span<const Message> receives) {
  const auto tag = [&](int process) {
    return static_cast<int>(number_with[process] % kExchanges * kCalls + call % kCalls);
  };
  auto pending = std::make_unique<MpiPending>(*this);
  for (const Message& message : receives) pending->start(Way::receive, message, tag(message.process));
  for (const Message& message : sends) pending->start(Way::send, message, tag(message.process));
  return pending;
}

// ---- texts ----

void MpiProcesses::transfer(Way way, const Message& message) {
  MpiPending pending(*this);
  pending.start(way, message, kTextTag);
  for (Idle idle(progress()); !pending.done(); std::this_thread::sleep_for(100us))
    if (idle.time() > patience_)
      throw std::runtime_error(nothing_moved("waits for a text " +
                                                 std::string(way == Way::send ? "to reach" : "of") +
                                                 " process " + std::to_string(message.process),
                                             patience_));
}

void MpiProcesses::send(int to, const std::string& text) {
  std::string copy = text;
  uint64_t size = copy.size();
  transfer(Way::send, {to, reinterpret_cast<std::byte*>(&size), sizeof size});
  transfer(Way::send, {to, reinterpret_cast<std::byte*>(copy.data()), copy.size()});
}

std::string MpiProcesses::receive(int from) {
  uint64_t size = 0;
  transfer(Way::receive, {from, reinterpret_cast<std::byte*>(&size), sizeof size});
  std::string text(size, '\0');
  transfer(Way::receive, {from, reinterpret_cast<std::byte*>(text.data()), text.size()});
  return text;
}

// ---- progress ----

// Runs on its own thread: repeats a sum over all processes until all of them are ending.
void MpiProcesses::share_progress() {
  Progress& own = progress();
  for (uint64_t seen = 0; !all_ending_;) {
    const std::array<uint64_t, 3> here{own.done, own.working > 0 ? 1U : 0U, ending_ ? 1U : 0U};
    std::array<uint64_t, 3> sum{};
    std::vector<MPI_Request> requests(1);
    std::unique_lock lock(mutex_);
    if (given_up_) return;
    MPI_Iallreduce(here.data(), sum.data(), 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD, requests.data());
    do {
      lock.unlock();
      std::this_thread::sleep_for(ending_ ? 1ms : kProgressInterval);
      lock.lock();
      if (given_up_) return;
    } while (!test(requests));
    if (sum[0] != seen || sum[1] > 0) ++own.elsewhere;
    seen = sum[0];
    all_ending_ = sum[2] == static_cast<uint64_t>(count());
  }
}

}  // namespace

std::unique_ptr<Processes> join_by_mpi(int count, double deadline_s) {
  return std::make_unique<MpiProcesses>(count, deadline_s);
}

}  // namespace stp

// The processes of one run: their exchange of texts, and of their ranks' data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stp/processes/progress.h"

namespace stp {

/// Bytes to or from `process`.
struct Message {
  int process;
  std::byte* bytes;
  size_t count;
};

/// Messages in progress. If it is destroyed before they are done, only abort() can end the process.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Whether all messages were sent and received; their bytes must stay valid until then. Does not wait.
  virtual bool done() = 0;
  /// The processes whose messages are not done.
  [[nodiscard]] virtual std::vector<int> missing() const = 0;
};

/// All processes make the same calls in one order, each from one thread. A process that fails ends the others
/// by abort(). If one dies, its launcher (MPI) or its connection's end (TCP) ends the others. Otherwise waits
/// end at a deadline with std::runtime_error. This class itself is a run of one process.
class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  virtual ~Processes() = default;

  /// The index of this process, and the number of processes. Process 0 writes results and messages for all.
  [[nodiscard]] int index() const { return place_.index; }
  [[nodiscard]] int count() const { return place_.count; }
  [[nodiscard]] bool is_root() const { return index() == 0; }
  /// The index of this process on its node, for the choice of a GPU.
  [[nodiscard]] int index_on_node() const { return place_.index_on_node; }

  /// Returns all processes' texts, in their order, at process 0; nothing elsewhere.
  std::vector<std::string> gather(std::string text);
  /// Returns process 0's text at all processes.
  std::string broadcast(std::string text);
  /// Returns the text of the first process of `among` at all of `among`. Only they make the call.
  std::string broadcast(std::string text, const std::vector<int>& among);

  /// Numbers a group's exchange: by process, the number of their exchange with it. `among`, two processes or
  /// more, drive the group's members; only they make the call. Both of two processes number their common
  /// exchanges in one order, so they agree without messages.
  std::vector<uint64_t> number_exchange(const std::vector<int>& among);
  /// Starts the messages of an exchange's call number `call` (each number once). Between two processes, the
  /// n-th message that one sends in a call is the n-th that the other receives, of the same size. Any thread
  /// may call it.
  virtual std::unique_ptr<Pending> start(const std::vector<uint64_t>& number_with, uint64_t call,
                                         std::span<const Message> sends, std::span<const Message> receives);

  /// Prints `why` and the process on standard error, and ends all processes with exit code `code`. An error
  /// that ends one process must come here, because other processes may wait for it.
  [[noreturn]] virtual void abort(const std::string& why, int code);

  /// Progress of this process, with what it knows of the others.
  Progress& progress() { return progress_; }

 protected:
  struct Place {
    int index = 0, count = 1, index_on_node = 0;
  };
  explicit Processes(Place place) : place_(place) {}
  void set_place(Place place) { place_ = place; }
  /// Prints the message of abort().
  void report_failure(const std::string& why) const;

 private:
  virtual void send(int to, const std::string& text);
  virtual std::string receive(int from);

  Progress progress_;
  Place place_;
  std::vector<uint64_t> exchanges_;  // by process: number of exchanges with it
};

/// The process, of `count`, that drives `rank`. Processes drive consecutive ranks, and their numbers of ranks
/// differ by at most one. With more processes than ranks, some have none.
int process_of_rank(int rank, int world_size, int count);
/// The world ranks of process `index`, ascending.
std::vector<int> ranks_of_process(int world_size, int index, int count);

/// Joins this process to the others of its launcher; call it once: over MPI (mpirun, or srun with PMIx), or
/// over TCP where RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say how (torchrun). A process that was
/// started alone is a run by itself. Waits for the start, the texts and the end of the others last at most
/// six deadlines without progress anywhere. Throws InputError if several processes were started that cannot
/// find each other.
std::unique_ptr<Processes> join_processes(double deadline_s);

}  // namespace stp

// The processes of one run: the texts that they exchange, and how the ranks that they drive exchange data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stp/processes/progress.h"

namespace stp {

/// Bytes that go to `process`, or come from it.
struct Message {
  int process;
  std::byte* bytes;
  size_t count;
};

/// Messages under way. Where it ends before they are done, the process can only be ended by abort().
class Pending {
 public:
  virtual ~Pending() = default;
  /// Whether all were sent and received: until then their bytes must stay. Does not wait.
  virtual bool done() = 0;
  /// The processes whose messages are not done.
  [[nodiscard]] virtual std::vector<int> missing() const = 0;
};

/// Messages among the processes of one group. Any thread may use it.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// The messages of the group's call number `call` (each number once). Between two processes the n-th that
  /// one sends in a call is the n-th that the other receives, and of its size.
  virtual std::unique_ptr<Pending> start(uint64_t call, std::span<const Message> sends,
                                         std::span<const Message> receives) = 0;
};

/// All processes make the same calls in one order, each from one thread. A process that fails ends the others
/// by abort(); one that dies is noticed by its launcher, which ends the others. Where neither happens, waits
/// end at a deadline: std::runtime_error. This class itself is a run of one process.
class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  virtual ~Processes() = default;

  /// Which process this one is, and how many there are. Process 0 writes results and speaks for all.
  [[nodiscard]] virtual int index() const { return 0; }
  [[nodiscard]] virtual int count() const { return 1; }
  [[nodiscard]] bool is_root() const { return index() == 0; }
  /// Which of the processes of its node this one is: for the choice of a GPU.
  [[nodiscard]] virtual int index_on_node() const { return 0; }

  /// What every process says: at process 0 all their texts, in the processes' order; elsewhere nothing.
  std::vector<std::string> gather(std::string text);
  /// What process 0 says, at all of them.
  std::string broadcast(std::string text);
  /// What the first process of `among` says, at all of those, which alone make the call.
  std::string broadcast(std::string text, const std::vector<int>& among);

  /// For a group whose members are driven by `among`, two processes or more, which alone make the call.
  virtual std::unique_ptr<Exchange> make_exchange(const std::vector<int>& among);

  /// Says why on standard error, by which process, and ends all processes with exit code `code`. What ends
  /// one process alone must come here: others may wait for it.
  [[noreturn]] virtual void abort(const std::string& why, int code);

  /// Of this process, and what it knows of the others.
  Progress& progress() { return progress_; }

 protected:
  /// What abort() begins with.
  void report_failure(const std::string& why) const;

 private:
  virtual void send(int to, const std::string& text);
  virtual std::string receive(int from);

  Progress progress_;
};

/// The world rank's process of `count`, which drive `world_size` ranks: each as many as the others, or one
/// more or less, one process after the other. Where there are more processes than ranks, some have none.
int process_of_rank(int rank, int world_size, int count);
/// The world ranks of process `index`, ascending.
std::vector<int> ranks_of_process(int world_size, int index, int count);

/// This process among those that a launcher (mpirun, or srun with PMIx) started with it; to be called once.
/// A process that was started alone is a run of its own, without MPI. Waits for the others to start, for
/// their texts and for their end take at most six times the deadline without progress anywhere. Throws
/// InputError where several were started that cannot find each other.
std::unique_ptr<Processes> join_processes(double deadline_s);

}  // namespace stp

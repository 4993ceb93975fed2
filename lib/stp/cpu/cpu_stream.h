// Streams and events of the CPU backend: a stream is a queue of tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/cpu/cpu_run.h"
#include "stp/device/device.h"

namespace stp::cpu {

/// Runs its tasks in order, on threads of the run. A task that throws fails the run ("rank 3, compute, F0.1:
/// …"). Once the run has failed, no stream begins another task.
class CpuStream : public Stream {
 public:
  /// `run` must outlive the stream, which is in its device's `streams` during its lifetime.
  CpuStream(CpuRun& run, std::vector<CpuStream*>& streams, int rank, std::string name);
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;
  /// Ends when all tasks are done, or the run has failed.
  ~CpuStream() override { std::erase(streams_, this); }

  EventRef record() override;
  EventRef fence() override { return latest_ ? latest_ : record(); }
  void wait(const EventRef& event) override;
  void begin(uint32_t op) override { op_ = op; }
  void start(uint32_t op) override;

  /// Adds a task that computes: while it runs, no deadline expires. The function must hold copies of all its
  /// arguments except tensors' elements, which it may use only while it runs. Waits while the queue is full.
  void enqueue(std::function<void()> task);
  /// Adds a task that may wait by itself, by RunGuard::wait or on the clock.
  void enqueue_waiting(std::function<void()> task);
  /// Adds a short task that starts when `after` is ready; null: at once.
  void enqueue_after(std::shared_ptr<const Awaited> after, std::function<void()> task);

  /// Waits until all tasks given so far are done. Throws Cancelled if the run has failed.
  void synchronize();

  [[nodiscard]] CpuRun& run() const { return run_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  /// This stream and its current op, for errors: "rank 3, compute, F0.1". Only its tasks may call it.
  [[nodiscard]] std::string where() const { return run_.where(rank_, name_, running_); }
  [[nodiscard]] std::optional<uint32_t> running() const { return running_; }

 private:
  void give(Task task);
  void perform(const Task& task);

  CpuRun& run_;
  std::vector<CpuStream*>& streams_;
  const int rank_;
  const std::string name_;
  std::optional<uint32_t> op_;       // of the host thread
  EventRef latest_;                  // the event after all tasks, if there is one
  std::optional<uint32_t> running_;  // of the task that is performed
  Workers::Queue queue_;             // last: its tasks use all others
};

/// Throws std::logic_error if `stream` belongs to another backend.
CpuStream& cpu_stream(Stream& stream);

}  // namespace stp::cpu

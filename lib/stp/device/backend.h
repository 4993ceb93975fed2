// A backend: the devices of the ranks that this process drives, and their groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "stp/device/device.h"
#include "stp/device/group.h"
#include "stp/device/run_context.h"
#include "stp/processes/processes.h"

namespace stp {

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// The number of ranks in the world; the ranks that this process drives, ascending.
  [[nodiscard]] virtual int world_size() const = 0;
  [[nodiscard]] virtual std::vector<int> ranks() const = 0;
  virtual Device& device(int rank) = 0;
  /// The number of ranks on one device; none if ranks are threads on the machine's processors.
  [[nodiscard]] virtual std::optional<int> ranks_per_device() const { return std::nullopt; }
  /// Makes the group `name` of world ranks. Every process that drives a member must call this, and no other.
  /// Groups of one use share a name. All processes make groups in the same order.
  virtual std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                                       GroupUse use = GroupUse::collectives) = 0;
  /// The processes that together drive the world's ranks.
  virtual Processes& processes() = 0;
  virtual RunGuard& guard() = 0;
  virtual void describe_with(DescribeOp describe) = 0;
};

/// What is done where ops start: it takes their time (the backend `emulated`), or makes them late or fail
/// (stp run --inject).
struct OpHooks {
  /// On the host's thread, before an op's kernels are given to its stream.
  std::function<void(int rank, uint32_t op)> issue = {};
  /// On the op's stream, after its waits and before its kernels. It may wait, if it looks at the guard.
  std::function<void(RunGuard& guard, int rank, uint32_t op)> start = {};
  /// For how many seconds the op holds its stream, then, before its kernels. Called like `start`.
  std::function<double(int rank, uint32_t op)> takes = {};
  /// Asked on the host's thread after each GEMM: whether its output becomes NaN.
  std::function<bool(int rank)> spoils = {};
};

/// How a library chooses the kernels of GEMMs (CUDA).
struct GemmOptions {
  /// Times the candidates of cuBLASLt's heuristic at a shape's first use, which waits for the GPU, and does
  /// not take the first candidate. For benchmarks.
  bool time_candidates = false;
  /// Multiprocessors for which kernels are chosen; 0: all. Fewer leave room for communication beside them.
  int multiprocessors = 0;
};

struct BackendOptions {
  int world_size = 1;
  double deadline_s = 10;         // longest time without progress of any rank
  size_t memory_limit = 0;        // bytes per rank; 0: none
  bool poison = false;            // fill fresh and released memory with NaN, for tests
  OpHooks hooks = {};             // of ranks that are threads (not CUDA)
  bool graphs = false;            // capture ops and launch them as graphs (CUDA)
  std::vector<std::string> nccl;  // NCCL options of groups among processes (lib/stp/cuda/nccl_tuning.h)
  GemmOptions gemm = {};
};

/// A backend whose devices are of one class and share one `Run`.
template <typename Run, typename OneDevice>
class BackendOf : public Backend {
 public:
  [[nodiscard]] int world_size() const override { return world_size_; }
  [[nodiscard]] std::vector<int> ranks() const override {
    std::vector<int> all;
    for (const auto& [rank, device] : devices_) all.push_back(rank);
    return all;
  }
  OneDevice& device(int rank) override { return *devices_.at(rank); }
  Processes& processes() override { return processes_; }
  RunGuard& guard() override { return run_.guard; }
  void describe_with(DescribeOp describe) override { run_.describe_with(std::move(describe)); }

 protected:
  /// `of_run`: the processes of the run; null if this process drives all ranks. `argument`: what Run is made
  /// of, besides. Throws std::logic_error for a world without ranks.
  template <typename Argument>
  BackendOf(const BackendOptions& options, Processes* of_run, const Argument& argument)
      : world_size_(options.world_size >= 1 ? options.world_size
                                            : throw std::logic_error("a world without ranks")),
        processes_(of_run == nullptr ? alone_ : *of_run),
        run_(options.deadline_s, of_run == nullptr ? nullptr : &of_run->progress(), argument) {}
  Run& run() { return run_; }
  /// Makes a rank's device, of the run and what else its class takes.
  template <typename... Arguments>
  void add_device(int rank, Arguments&&... of_device) {
    devices_.emplace(rank, std::make_unique<OneDevice>(run_, rank, std::forward<Arguments>(of_device)...));
  }

 private:
  const int world_size_;
  Processes alone_;
  Processes& processes_;
  Run run_;
  std::map<int, std::unique_ptr<OneDevice>> devices_;  // by rank
};

}  // namespace stp

// A backend: the devices of the ranks that this process drives, and their groups.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
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
  /// Number of ranks in the world, and those that this process drives, ascending.
  [[nodiscard]] virtual int world_size() const = 0;
  [[nodiscard]] virtual std::vector<int> ranks() const = 0;
  virtual Device& device(int rank) = 0;
  /// How many ranks share one device; none if ranks are threads of the machine's processors.
  [[nodiscard]] virtual std::optional<int> ranks_per_device() const { return std::nullopt; }
  /// The group `name` of world ranks, some of which this process drives. Every process that drives a member
  /// must call this; a name belongs to one set of members, and all processes make groups in the same order.
  virtual std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                                       GroupUse use = GroupUse::collectives) = 0;
  /// The processes that drive the world's ranks together.
  virtual Processes& processes() = 0;
  virtual RunGuard& guard() = 0;
  virtual void describe_with(DescribeOp describe) = 0;
};

/// Indices of the `members` that are in `ranks`, as Group takes them.
std::vector<int> local_members(const std::vector<int>& members, const std::vector<int>& ranks);

struct BackendOptions {
  int world_size = 1;
  double deadline_s = 10;         // without progress of any rank
  size_t memory_limit = 0;        // bytes a rank; 0: none
  bool poison = false;            // fill fresh and released memory with NaN, for tests
  bool graphs = false;            // ops are captured, and launched as graphs (CUDA)
  double hold_compute_us = 0;     // Device::hold_compute(), microseconds (CUDA)
  std::vector<std::string> nccl;  // how groups among processes use NCCL (lib/stp/cuda/nccl_tuning.h)
  // For GEMMs, if a library chooses among kernels (CUDA):
  bool time_gemms = false;  // candidates are timed at a shape's first use; for benchmarks
  // Multiprocessors that kernels are chosen for, the others being left to communication; 0: all.
  int gemm_multiprocessors = 0;
};

}  // namespace stp

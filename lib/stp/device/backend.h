// A backend: the devices of the ranks that this process drives, and the groups among them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stp/device/communicator.h"
#include "stp/device/device.h"
#include "stp/device/run_context.h"

namespace stp {

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Number of ranks in the world, and those that this process drives.
  [[nodiscard]] virtual int world_size() const = 0;
  [[nodiscard]] virtual std::vector<int> ranks() const = 0;
  virtual Device& device(int rank) = 0;
  /// How many ranks share one device; none where ranks are threads of the machine's processors.
  [[nodiscard]] virtual std::optional<int> ranks_per_device() const { return std::nullopt; }
  /// The end of `members[index]` in the group `name` of world ranks. Every member asks for its end; names are
  /// unique to a set of members, and all members ask for their groups in the same order.
  virtual std::unique_ptr<Communicator> communicator(const std::string& name, const std::vector<int>& members,
                                                     int index, GroupUse use = GroupUse::any) = 0;
  virtual RunGuard& guard() = 0;
  /// Which of the run's processes this one is, and how many there are. Process 0 speaks for all.
  [[nodiscard]] virtual int process() const { return 0; }
  [[nodiscard]] virtual int processes() const { return 1; }
  /// What every process says at this point: at process 0 all their texts, in the processes' order; nothing at
  /// the others, which do not wait. All come to their gathers in one order. Throws Stopped if the run fails.
  virtual std::vector<std::string> gather(const std::string& name, std::string text) {
    static_cast<void>(name);
    return {std::move(text)};
  }
  virtual void describe_with(DescribeOp describe) = 0;
};

struct BackendOptions {
  int world_size = 1;
  double deadline_s = 10;         // without progress anywhere
  size_t memory_limit = 0;        // bytes a rank; 0: none
  bool poison = false;            // fill fresh and released memory with NaN, for tests
  bool graphs = false;            // what comes again is captured, and replayed (CUDA)
  std::vector<std::string> nccl;  // how groups among processes use NCCL (lib/stp/cuda/nccl_tuning.h)
  // Of matrix products, where a library chooses among kernels (CUDA):
  bool time_products = false;  // candidates are timed at a shape's first use, for benchmarks
  int product_multiprocessors =
      0;  // that kernels are chosen for, the others being left to communication; 0: all
};

}  // namespace stp

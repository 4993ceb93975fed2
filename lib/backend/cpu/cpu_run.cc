#include "stp/cpu/cpu_run.h"

#include <utility>

namespace stp {

void CpuRun::describe_with(DescribeOp describe) {
  const std::lock_guard lock(mutex_);
  describe_ = std::move(describe);
}

std::string CpuRun::where(int rank, const std::string& stream, std::optional<uint32_t> op) const {
  std::string text = "rank " + std::to_string(rank) + ", " + stream;
  if (!op) return text;
  DescribeOp describe;
  {
    const std::lock_guard lock(mutex_);
    describe = describe_;
  }
  return text + ", " + (describe ? describe(rank, *op) : "op " + std::to_string(*op));
}

}  // namespace stp

#include "stp/device/run_context.h"

#include <utility>

namespace stp {

void RunContext::describe_with(DescribeOp describe) {
  const std::lock_guard lock(mutex_);
  describe_ = std::move(describe);
}

std::string RunContext::words(int rank, uint32_t op) const {
  DescribeOp describe;
  {
    const std::lock_guard lock(mutex_);
    describe = describe_;
  }
  return describe ? describe(rank, op) : "op " + std::to_string(op);
}

std::string RunContext::where(int rank, const std::string& stream, std::optional<uint32_t> op) const {
  std::string text = "rank " + std::to_string(rank) + ", " + stream;
  return op ? text + ", " + words(rank, *op) : text;
}

}  // namespace stp

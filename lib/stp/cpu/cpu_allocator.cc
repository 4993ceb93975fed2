#include "stp/cpu/cpu_allocator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace stp::cpu {
namespace {

constexpr size_t kAlignment = 64;
constexpr int kPoison = 0xFF;  // a quiet NaN in every floating-point type

// The address sanitizer sees the use of a released block only if it is given back.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepBlocks = false;
#else
constexpr bool kKeepBlocks = true;
#endif

CpuBlock fresh(size_t bytes) {
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  CpuBlock block(std::aligned_alloc(kAlignment, whole == 0 ? kAlignment : whole));
  if (!block)
    throw std::runtime_error("out of memory: the system has no " + std::to_string(bytes) + " bytes");
  return block;
}

void check_there(const CpuMemory& memory, const char* what) {
  if (!memory.block)
    throw std::logic_error(std::string(what) + " of memory that is not allocated or already released");
}

}  // namespace

void CpuAllocator::allocate(CpuMemory& memory) {
  ledger_.allocate(memory.kind, memory.bytes);
  memory.block = take(memory.bytes);
  if (poison_) std::memset(memory.block.get(), kPoison, memory.bytes);
}

void CpuAllocator::release(CpuMemory& memory) {
  check_there(memory, "release");
  ledger_.release(memory.kind, memory.bytes);
  if (poison_) std::memset(memory.block.get(), kPoison, memory.bytes);
  keep(memory.bytes, std::move(memory.block));
}

void CpuAllocator::retag(CpuMemory& memory, MemoryKind kind) {
  check_there(memory, "change of kind");
  ledger_.retag(memory.kind, kind, memory.bytes);
  memory.kind = kind;
}

CpuBlock CpuAllocator::take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kept_.find(bytes); found != kept_.end() && !found->second.empty()) {
      CpuBlock block = std::move(found->second.back());
      found->second.pop_back();
      kept_bytes_ -= bytes;
      return block;
    }
  }
  return fresh(bytes);
}

void CpuAllocator::keep(size_t bytes, CpuBlock block) {
  if (!kKeepBlocks) return;
  std::map<size_t, std::vector<CpuBlock>> dropped;  // given back when the lock is
  const std::lock_guard lock(mutex_);
  most_kept_ = std::max(most_kept_, ledger_.peak());
  if (kept_bytes_ + bytes > most_kept_) {
    // Sizes have changed: start anew.
    dropped.swap(kept_);
    kept_bytes_ = 0;
  }
  kept_[bytes].push_back(std::move(block));
  kept_bytes_ += bytes;
}

}  // namespace stp::cpu

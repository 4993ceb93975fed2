// Where the CPU backend's memory comes from.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "stp/cpu/cpu_memory.h"
#include "stp/device/memory_ledger.h"

namespace stp::cpu {

/// Blocks of one device, counted in its ledger. Released blocks are kept for allocations of equal size, since
/// the system's fresh pages cost more than most kernels; those kept are no more bytes than were ever held at
/// once. Threads may call it at once.
class CpuAllocator {
 public:
  /// `poison`: all bytes of fresh and released blocks are set, so that floats there are NaN.
  CpuAllocator(size_t limit, bool poison) : ledger_(limit), poison_(poison) {}

  /// Gives `memory`, which has its `bytes` and `kind`, its block. Throws as MemoryLedger::allocate does, and
  /// std::runtime_error where the system has no more memory.
  void allocate(CpuMemory& memory);
  /// Throws std::logic_error if it has no block.
  void release(CpuMemory& memory);
  void retag(CpuMemory& memory, MemoryKind kind);

  [[nodiscard]] MemoryLedger& ledger() { return ledger_; }

 private:
  CpuBlock take(size_t bytes);
  void keep(size_t bytes, CpuBlock block);

  MemoryLedger ledger_;
  const bool poison_;
  std::mutex mutex_;
  std::map<size_t, std::vector<CpuBlock>> kept_;  // by bytes
  size_t kept_bytes_ = 0, most_kept_ = 0;
};

}  // namespace stp::cpu

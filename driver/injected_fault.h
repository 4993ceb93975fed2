// Faults that `stp run --inject` makes: of a rank, where one of its ops starts.
#pragma once

#include <string>
#include <vector>

#include "stp/device/backend.h"
#include "stp/model/strategy.h"
#include "stp/program/program.h"

namespace stp {

enum class FaultKind {
  kill,   // ends the process by SIGKILL
  stall,  // the op never starts
  slow,   // the op starts late, in every step
  nan,    // the output of the op's first GEMM becomes NaN
  alloc,  // the op gets no memory
  disk,   // from the op on, the rank's process writes no bytes to files
};

struct Fault {
  FaultKind kind;
  int rank;            // of the world
  std::string action;  // "F0.3": its first op
  double seconds = 0;  // of `slow`
};

/// Reads "kill:RANK:ACTION" or "slow:RANK:ACTION:SECONDS". Throws InputError.
Fault read_fault(const std::string& text);

/// Adds the fault to `hooks`; says on standard error when it happens. All but `slow` happen once. Throws
/// InputError if the rank has no such action.
OpHooks with_fault(OpHooks hooks, const Fault& fault, const Program& program, const RankGrid& grid);

/// Adds the delay of `slow` to the op's seconds.
void add_delay(const Fault& fault, const Program& program, const RankGrid& grid,
               std::vector<double>& seconds);

}  // namespace stp

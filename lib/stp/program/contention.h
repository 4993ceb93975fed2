// How much overlapping ops slow each other down.
#pragma once

namespace stp {

/// Shares of full speed at which a compute op and a collective of its rank's tensor-parallel group run while
/// they overlap, if both contend (Op::contends).
struct Contention {
  double compute = 1;
  double all_reduce = 1;
};

}  // namespace stp

// Checks whether the machine's processors are currently as fast as usual. A shared machine, virtual ones
// above all, is slow at times; a step timed then is not representative.
#pragma once

#include <memory>
#include <vector>

#include "stp/device/backend.h"
#include "stp/device/kernels.h"

namespace stp {

/// Processor time of other programs on this machine. Known only on Linux; else 0.
class OtherPrograms {
 public:
  OtherPrograms();
  /// Their share of all processors' time since construction.
  [[nodiscard]] double share() const;

 private:
  double busy_, own_;  // seconds at construction: of all programs, of this one
  double start_;
};

class SpeedProbe {
 public:
  /// `backend` has as many ranks as a run keeps processors busy. `rate`: the speed of each of them, relative
  /// to one alone.
  SpeedProbe(std::unique_ptr<Backend> backend, double rate);

  /// Times a fixed GEMM on one rank and on all at once, within milliseconds. Returns whether all are as fast
  /// as expected from the fastest single rank so far.
  bool steady();

 private:
  struct Rank {
    std::unique_ptr<Stream> stream;
    Tensor a, b, c;
  };
  static constexpr double kDisturbed = 1.25;

  // The seconds of the slowest of the first `count` ranks.
  double time_gemms(int count);

  std::unique_ptr<Backend> backend_;
  std::vector<Rank> ranks_;
  const double rate_;
  double fastest_ = 0;
};

}  // namespace stp

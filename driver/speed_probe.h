// Whether the machine's processors are as fast as usual at this moment: a machine that others use too
// (virtual ones above all) has spells in which they are not, and a step timed in one says nothing of the
// machine.
#pragma once

#include <memory>
#include <vector>

#include "stp/device/backend.h"
#include "stp/device/kernels.h"

namespace stp {

/// Processor time that other programs of this machine took. Nothing is known of it off Linux: then none.
class OtherPrograms {
 public:
  OtherPrograms();
  /// Their share of all processors' time since this was made.
  [[nodiscard]] double share() const;

 private:
  double busy_, own_;  // seconds until then, of all programs and of this one
  double start_;
};

class SpeedProbe {
 public:
  /// `backend` drives as many ranks as the runs keep processors busy; `rate` is each one's speed then, as a
  /// share of one alone.
  SpeedProbe(std::unique_ptr<Backend> backend, double rate);
  ~SpeedProbe();

  /// Times the same matrix product on one rank and on all at once, milliseconds in all: whether all go as
  /// fast as they should beside the fastest single one ever.
  bool steady();
  /// Waits until they do, `seconds` at the most; false if they never did.
  bool wait(double seconds);

 private:
  struct Rank {
    std::unique_ptr<Stream> stream;
    Tensor a, b, c;
  };
  static constexpr double kDisturbed = 1.25;

  // The slowest of the first `count` ranks.
  double products(int count);

  std::unique_ptr<Backend> backend_;
  std::vector<Rank> ranks_;
  const double rate_;
  double fastest_ = 0;
};

}  // namespace stp

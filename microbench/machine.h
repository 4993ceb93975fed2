// The ranks of a machine that a benchmark runs on: their devices, streams and groups, and the time of work
// that they do together.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stp/backend/backend.h"
#include "stp/backend/communicator.h"
#include "stp/backend/kernels.h"

namespace stp::microbench {

/// What a benchmark runs on, by name: the one place that makes backends here.
struct MachineKind {
  std::string backend = "cpu";
  int processors = 1;       // that ranks share; 0: every rank has a device of its own
  double memory_bytes = 0;  // of the whole machine
  DType type = DType::f32;  // of matrices
};
/// InputError if that backend is not built in, or has no device here.
MachineKind find_machine(const std::string& backend);

class Machine {
 public:
  Machine(MachineKind kind, int ranks);
  ~Machine();

  /// Of matrices.
  [[nodiscard]] DType type() const { return kind_.type; }
  [[nodiscard]] int ranks() const { return static_cast<int>(ranks_.size()); }
  Device& device(int rank) { return backend_->device(rank); }
  Kernels& kernels(int rank) { return device(rank).kernels(); }
  Stream& compute(int rank) { return *ranks_[rank].compute; }
  Stream& communication(int rank) { return *ranks_[rank].communication; }
  Communicator& group(int rank) { return *ranks_[rank].group; }

  /// Filled with a small number, so that nothing is denormal and nothing overflows.
  Tensor make(int rank, DType type, int64_t rows, int64_t columns);
  Tensor make(int rank, int64_t rows, int64_t columns) { return make(rank, kind_.type, rows, columns); }
  /// Gives back all that was made by make().
  void clear();
  void synchronize();

  using Work = std::function<void(int rank)>;  // gives work to the rank's streams
  /// All ranks begin `compute` on their compute streams and `communicate` on their communication streams at
  /// once (either may be empty). Seconds from the last rank's start to the last one's end of each.
  struct Times {
    double compute = 0, communication = 0;
  };
  Times time(const Work& compute, const Work& communicate);

  /// Puts other data into every rank's caches.
  void flush_caches();

  /// Seconds of a product that never changes, on all ranks at once: how fast the machine is at this moment.
  double probe();

 private:
  struct Rank {
    std::unique_ptr<Stream> compute, communication;
    std::unique_ptr<Communicator> group;
    Tensor flag;        // for the barrier before each timing
    Tensor a, b, c;     // of the probe
    Tensor other_data;  // made when the caches are first flushed
  };

  MachineKind kind_;
  std::unique_ptr<Backend> backend_;
  std::vector<Rank> ranks_;
  std::vector<std::pair<int, Tensor>> made_;  // with the rank
};

}  // namespace stp::microbench

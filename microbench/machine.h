// The ranks of a machine that a benchmark runs on: their devices, streams and groups, and the time of work
// that they do together.
#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/cluster/profile.h"
#include "stp/device/backend.h"
#include "stp/device/communicator.h"
#include "stp/device/kernels.h"
#include "stp/processes/rendezvous.h"

namespace stp::microbench {

/// What benchmarks run on.
struct MachineKind {
  std::string backend = "cpu";
  int processors = 1;       // that ranks share; 0: every rank has a device of its own
  double memory_bytes = 0;  // of the whole machine, or of a device
  DType type = DType::f32;  // of matrices
  /// Where given, rank 0 is alone, and what ranks exchange takes the time of this machine's links.
  std::optional<HardwareProfile> peers = std::nullopt;
  /// Where given, this process drives the rank of its place, on a device of its own.
  Rendezvous* processes = nullptr;
};
/// InputError if that backend is not built in, or has no device of that number here.
MachineKind find_machine(const std::string& backend, int device = 0);

/// How many ranks, and what of a device is set for them; 0: as it is by itself.
struct Arrangement {
  int ranks = 1;
  int communication_ctas = 0;          // blocks of threads of a collective that is paced
  int product_multiprocessors = 0;     // that products' kernels are chosen for
  bool fastest_products = false;       // of all candidates that a library has, each timed at first
  bool communication_priority = true;  // over computation
  auto operator<=>(const Arrangement&) const = default;
};

class Machine {
 public:
  Machine(MachineKind kind, const Arrangement& arrangement);
  ~Machine();

  /// Of matrices.
  [[nodiscard]] DType type() const { return kind_.type; }
  /// Those that work here, and those that there are with peers.
  [[nodiscard]] int ranks() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int world() const { return world_; }
  /// Ranks are counted from 0 here; in the world they have this number.
  [[nodiscard]] int world_rank(int rank) const { return backend_->ranks()[rank]; }
  Device& device(int rank) { return backend_->device(world_rank(rank)); }
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
    Tensor other_data;  // once it is needed
  };

  void hold_back();
  Tensor& other_data(int rank);

  MachineKind kind_;
  int world_;
  std::unique_ptr<Backend> backend_;
  std::vector<Rank> ranks_;
  std::vector<std::pair<int, Tensor>> made_;  // with the rank
};

}  // namespace stp::microbench

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
#include "stp/device/kernels.h"
#include "stp/processes/processes.h"

namespace stp::microbench {

/// What benchmarks run on.
struct MachineKind {
  std::string backend = "cpu";
  int processors = 1;       // that ranks share; 0: every rank has a device of its own
  double memory_bytes = 0;  // of the whole machine, or of a device
  DType type = DType::f32;  // of matrices
  /// Where given, rank 0 is alone, and what ranks exchange takes the time of this machine's links.
  std::optional<HardwareProfile> peers = std::nullopt;
  /// Where given and several, each drives ranks_of_process(), or one rank on a device of its own.
  Processes* processes = nullptr;

  [[nodiscard]] bool has_others() const { return processes != nullptr && processes->count() > 1; }
};
/// InputError if that backend is not built in, or has no device of that number here.
MachineKind find_machine(const std::string& backend, int device = 0);

/// How many ranks, and what of a device is set for them; 0: as it is by itself.
struct Arrangement {
  int ranks = 1;
  int communication_ctas = 0;          // blocks of threads of a collective over emulated links
  int gemm_multiprocessors = 0;        // that GEMMs' kernels are chosen for
  bool fastest_gemms = false;          // of all candidates that a library has, each timed at first
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
  /// Of all ranks of the world.
  Group& group() { return *group_; }
  /// What the ranks here bring to its calls on their communication streams: the tensor at their index of
  /// each, none where there are none.
  [[nodiscard]] std::vector<Part> parts(const std::vector<Tensor>& in, const std::vector<Tensor>& out) const;

  /// Filled with a small number, so that nothing is denormal and nothing overflows.
  Tensor make(int rank, DType type, int64_t rows, int64_t columns);
  Tensor make(int rank, int64_t rows, int64_t columns) { return make(rank, kind_.type, rows, columns); }
  /// Gives back all that was made by make().
  void clear();
  void synchronize();

  using Work = std::function<void(int rank)>;  // gives work to the rank's compute stream
  using Exchange = std::function<void()>;      // gives work to the communication streams of all ranks
  /// All ranks begin `compute` on their compute streams and `communicate` on their communication streams at
  /// once (either may be empty). Seconds from the last rank's start to the last one's end of each.
  struct Times {
    double compute = 0, communication = 0;
  };
  Times time(const Work& compute, const Exchange& communicate);

  /// Puts other data into every rank's caches.
  void flush_caches();

  /// Seconds of a product that never changes, on all ranks at once: how fast the machine is at this moment.
  double probe();

 private:
  struct Rank {
    std::unique_ptr<Stream> compute, communication;
    Tensor a, b, c;     // of the probe
    Tensor other_data;  // once it is needed
  };

  void hold_back();
  Tensor& other_data(int rank);

  MachineKind kind_;
  int world_;
  std::unique_ptr<Backend> backend_;
  std::vector<Rank> ranks_;
  std::unique_ptr<Group> group_;
  std::vector<Tensor> flags_;                 // by rank, for the barrier before each timing
  std::vector<std::pair<int, Tensor>> made_;  // with the rank
};

}  // namespace stp::microbench

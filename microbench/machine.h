// The environment of benchmarks: ranks with their devices, streams and groups, and the timing of their work.
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

/// The machine that benchmarks run on.
struct MachineSpec {
  std::string backend = "cpu";
  int processors = 1;       // shared by ranks; 0: every rank has its own device
  double memory_bytes = 0;  // of the whole machine, or of a device
  DType type = DType::f32;  // of matrices
  /// If set, only rank 0 runs, and its communication is over emulated links of this machine.
  std::optional<HardwareProfile> peers = std::nullopt;
  /// If set and more than one, each process drives ranks_of_process(), or one rank on its own device.
  Processes* processes = nullptr;

  [[nodiscard]] bool has_others() const { return processes != nullptr && processes->count() > 1; }
};
/// Throws InputError if the backend is not built in, or there is no device number `device`.
MachineSpec find_machine(const std::string& backend, int device = 0);

/// The number of ranks, and device settings; 0: the default.
struct Arrangement {
  int ranks = 1;
  int communication_ctas = 0;                            // thread blocks of a collective over emulated links
  int gemm_multiprocessors = 0;                          // for the choice of GEMM kernels
  bool fastest_gemms = false;                            // times all candidates of the library at first use
  bool communication_priority = true;                    // over compute
  auto operator<=>(const Arrangement&) const = default;  // NOLINT(modernize-use-nullptr): of clang-tidy 14
};

class BenchEnv {
 public:
  BenchEnv(MachineSpec spec, const Arrangement& arrangement);
  ~BenchEnv();

  /// Type of matrices.
  [[nodiscard]] DType type() const { return spec_.type; }
  /// The number of ranks of this process; of the world, with emulated peers.
  [[nodiscard]] int ranks() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int world() const { return world_; }
  /// The world rank of a rank. Ranks count from 0 here.
  [[nodiscard]] int world_rank(int rank) const { return backend_->ranks()[rank]; }
  Device& device(int rank) { return backend_->device(world_rank(rank)); }
  Kernels& kernels(int rank) { return device(rank).kernels(); }
  Stream& compute(int rank) { return *ranks_[rank].compute; }
  Stream& communication(int rank) { return *ranks_[rank].communication; }
  /// The group of all ranks of the world; transfers have their own.
  Group& group(CallKind kind = CallKind::all_reduce) {
    return kind == CallKind::transfer ? *transfers_ : *group_;
  }
  /// Parts of this process's ranks, on their communication streams, for the group's calls. `in` and `out` are
  /// by rank, or empty.
  [[nodiscard]] std::vector<Part> parts(const std::vector<Tensor>& in, const std::vector<Tensor>& out) const;

  /// Makes a tensor of random numbers, of size 1 at most: with constant operands a GPU takes less power and
  /// clocks higher. Indices are not set.
  Tensor make(int rank, DType type, int64_t rows, int64_t columns);
  Tensor make(int rank, int64_t rows, int64_t columns) { return make(rank, spec_.type, rows, columns); }
  /// Frees all tensors made by make().
  void clear();
  void synchronize();

  using Work = std::function<void(int rank)>;  // gives work to the rank's compute stream
  using Exchange = std::function<void()>;      // gives work to the communication streams of all ranks
  /// Runs `compute` and `communicate` (either may be empty), each of about `calls` calls, at once on all
  /// ranks' streams. Seconds from the last rank's start to the last end of each.
  struct Times {
    double compute = 0, communication = 0;
  };
  Times time(const Work& compute, const Exchange& communicate, int calls);
  /// Seconds of a call, over `calls` of them, by the clock of rank 0's compute stream.
  double time_calls(int calls, const std::function<void()>& call);

  /// Fills every rank's caches with other data.
  void flush_caches();

  /// Seconds of a fixed GEMM on all ranks at once: the machine's current speed.
  double probe();

 private:
  struct Rank {
    std::unique_ptr<Stream> compute, communication;
    Tensor a, b, c;     // of the probe
    Tensor other_data;  // made at first use
  };
  void fill(int rank, const Tensor& tensor);

  void hold_back(int calls);
  Tensor& other_data(int rank);

  MachineSpec spec_;
  int world_;
  std::unique_ptr<Backend> backend_;
  std::vector<Rank> ranks_;
  std::unique_ptr<Group> group_, transfers_;
  std::vector<Tensor> flags_;                 // by rank, for the barrier before each timing
  std::vector<std::pair<int, Tensor>> made_;  // with the rank
};

}  // namespace stp::microbench

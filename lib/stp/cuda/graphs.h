// CUDA graphs of a stream's work. Consecutive kernels of an op are captured and launched as one graph. A step
// has the addresses and numbers of the step before: each graph is captured once, and launched as it is.
// Waits, events, copies other than kernel::Copy and NCCL's calls stay outside, so dependencies, times and
// supervision of ops are the same as without graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace stp::cuda {

/// Arguments whose values are new each time.
template <typename T>
concept NewEachTime = requires {
  T::is_new_each_time;
};

/// The bytes of values, or "" if some are new each time. Padding may differ between equal ones: their graph
/// is then captured again.
template <typename... Values>
std::string bytes_of_values(const Values&... values) {
  static_assert((std::is_trivially_copyable_v<Values> && ...));
  if constexpr ((NewEachTime<Values> || ...)) return "";
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}

/// The launch of one kernel. `kernel` identifies it, `arguments` all else that the launch depends on; "": it
/// never comes again.
struct GraphCall {
  const void* kernel;
  std::string arguments;
  std::function<void(cudaStream_t)> launch;
};

/// How kernels were launched.
struct GraphCounts {
  uint64_t alone = 0, in_graphs = 0;
  uint64_t refused = 0;  // sequences that could not be captured

  GraphCounts& operator+=(const GraphCounts& other) {
    alone += other.alone;
    in_graphs += other.in_graphs;
    refused += other.refused;
    return *this;
  }
};

/// The graphs of one stream.
class Graphs {
 public:
  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs();

  /// Launches `calls` as a graph. It launches them one by one if their kernels come together for the first
  /// time, because they may have to be loaded, if one never comes again, or if they cannot be captured.
  /// Throws CudaError.
  void launch(cudaStream_t stream, const std::vector<GraphCall>& calls);
  [[nodiscard]] const GraphCounts& counts() const { return counts_; }

 private:
  /// The graphs of one sequence of kernels.
  struct Entry {
    std::map<std::string, cudaGraphExec_t> graphs;  // by arguments
    uint64_t updates = 0, remade = 0;               // of graphs for other arguments; those that were refused
    bool refused = false;
  };

  void launch_alone(cudaStream_t stream, const std::vector<GraphCall>& calls);
  /// The graph of the calls; null if there cannot be one.
  cudaGraphExec_t prepare(cudaStream_t stream, const std::vector<GraphCall>& calls, Entry& entry);

  std::map<std::vector<const void*>, Entry> entries_;  // by kernels
  GraphCounts counts_;
};

}  // namespace stp::cuda

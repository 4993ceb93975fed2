// CUDA graphs of a stream's work. Consecutive kernels of an op are captured and launched as one graph. Ops of
// one kind have other addresses and numbers each time: the graph with the same kernels is updated to them.
// Waits, events, copies and NCCL's calls stay outside, so dependencies, times and supervision of ops are the
// same as without graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace stp::cuda {

/// The launch of one kernel. `kernel` identifies it.
struct GraphCall {
  const void* kernel;
  std::function<void(cudaStream_t)> launch;
};

/// How kernels were launched.
struct GraphCounts {
  uint64_t alone = 0, in_graphs = 0;
  uint64_t instantiated = 0;  // graphs
  uint64_t refused = 0;       // sequences that could not be captured

  GraphCounts& operator+=(const GraphCounts& other) {
    alone += other.alone;
    in_graphs += other.in_graphs;
    instantiated += other.instantiated;
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
  /// time, because they may have to be loaded, or if they cannot be captured. Throws CudaError.
  void launch(cudaStream_t stream, const std::vector<GraphCall>& calls);
  [[nodiscard]] const GraphCounts& counts() const { return counts_; }

 private:
  struct Entry {
    cudaGraphExec_t graph = nullptr;
    bool refused = false;
  };

  void launch_alone(cudaStream_t stream, const std::vector<GraphCall>& calls);
  /// Whether `entry.graph` can launch the calls.
  bool prepare(cudaStream_t stream, const std::vector<GraphCall>& calls, Entry& entry);

  std::map<std::vector<const void*>, Entry> entries_;  // by kernels
  GraphCounts counts_;
};

}  // namespace stp::cuda

// CUDA graphs of what a stream is given. Kernels that an op gives a stream one after the other are captured,
// and launched as one graph. Ops of a kind come with other addresses and numbers every time: the graph that
// launches the same kernels is updated to them. Waits, events, copies and NCCL's calls stay outside, so that
// ops depend on each other, are timed and are watched as without graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace stp::cuda {

/// The launch of one kernel, which `kernel` identifies.
struct GraphCall {
  const void* kernel;
  std::function<void(cudaStream_t)> launch;
};

/// How kernels were launched.
struct GraphCounts {
  uint64_t alone = 0, in_graphs = 0;
  uint64_t instantiated = 0;  // graphs
  uint64_t refused = 0;       // pieces that could not be captured

  GraphCounts& operator+=(const GraphCounts& other) {
    alone += other.alone;
    in_graphs += other.in_graphs;
    instantiated += other.instantiated;
    refused += other.refused;
    return *this;
  }
};

/// Of one stream.
class Graphs {
 public:
  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs();

  /// Kernels that come together for the first time, which may have to be loaded, are launched one by one; so
  /// are those that cannot be captured. Throws CudaError.
  void launch(cudaStream_t stream, const std::vector<GraphCall>& calls);
  [[nodiscard]] const GraphCounts& counts() const { return counts_; }

 private:
  struct Entry {
    cudaGraphExec_t graph = nullptr;
    bool refused = false;
  };

  void launch_alone(cudaStream_t stream, const std::vector<GraphCall>& calls);
  /// Whether `entry.graph` is what launches the calls.
  bool prepare(cudaStream_t stream, const std::vector<GraphCall>& calls, Entry& entry);

  std::map<std::vector<const void*>, Entry> entries_;  // by kernels
  GraphCounts counts_;
};

}  // namespace stp::cuda

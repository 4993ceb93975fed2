// CUDA graphs of what a stream is given again and again.
//
// The calls of an op that follow each other on a stream are issued together. They are told apart by what they
// do and with which memory (repeatable_call.h); since tensors get their slots in the order of the program
// (lib/stp/cuda/memory_slots.h), an op comes again with the same calls as soon as a microbatch of its kind
// has the same slots. What comes the second time is captured, and from then on replayed as one graph.
//
// Waits, events, communication and what has a number of its own (an optimizer's step) stay outside: so ops
// depend on each other as the program says, are timed one by one, and are watched as all other work is.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "stp/cuda/repeatable_call.h"

namespace stp::cuda {

using Calls = std::vector<std::unique_ptr<RepeatableCall>>;

/// How calls were issued.
struct GraphCounts {
  uint64_t launched = 0;  // one by one
  uint64_t replayed = 0;  // by graphs
  uint64_t graphs = 0;    // captured
  uint64_t refused = 0;   // that could not be captured, and are issued one by one

  GraphCounts& operator+=(const GraphCounts& other) {
    launched += other.launched;
    replayed += other.replayed;
    graphs += other.graphs;
    refused += other.refused;
    return *this;
  }
};

/// Of one stream; used where its work is issued.
class GraphCache {
 public:
  GraphCache() = default;
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;
  ~GraphCache();

  /// Gives `stream`, always the same, the work of `calls`; by a graph where `capture` and it came before.
  /// What the calls throw. What cannot be captured is issued as without graphs.
  void issue(cudaStream_t stream, const Calls& calls, bool capture);
  [[nodiscard]] const GraphCounts& counts() const { return counts_; }

 private:
  struct Entry {
    cudaGraphExec_t graph = nullptr;
    bool refused = false;
  };

  void launch(cudaStream_t stream, const Calls& calls);
  cudaGraphExec_t capture(cudaStream_t stream, const Calls& calls);

  std::unordered_map<std::string, Entry> entries_;  // by what their calls say of themselves
  GraphCounts counts_;
};

}  // namespace stp::cuda

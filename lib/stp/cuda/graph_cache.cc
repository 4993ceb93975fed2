#include "stp/cuda/graph_cache.h"

#include <exception>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"

namespace stp::cuda {
namespace {

/// Of one call a graph would save nothing.
constexpr size_t kFewestCalls = 2;
/// What comes after so many different ones is issued without graphs: each costs memory.
constexpr size_t kMostEntries = 8192;

const void* address_of(const Tensor& tensor) { return data<std::byte>(tensor); }

}  // namespace

GraphCache::~GraphCache() {
  for (const auto& [words, entry] : entries_)
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
}

void GraphCache::issue(cudaStream_t stream, const Calls& calls, bool capture_them) {
  if (!capture_them || calls.size() < kFewestCalls) return launch(stream, calls);
  std::string words;
  for (const auto& call : calls) call->describe(words, address_of);
  const auto found = entries_.find(words);
  if (found == entries_.end()) {
    // The first time libraries may choose their kernels, and scratch memory may grow.
    launch(stream, calls);
    if (entries_.size() < kMostEntries) entries_.emplace(std::move(words), Entry{});
    return;
  }
  Entry& entry = found->second;
  if (entry.graph == nullptr && !entry.refused) {
    entry.graph = capture(stream, calls);
    entry.refused = entry.graph == nullptr;
    ++(entry.refused ? counts_.refused : counts_.graphs);
  }
  if (entry.refused) return launch(stream, calls);
  STP_CUDA(cudaGraphLaunch(entry.graph, stream));
  counts_.replayed += calls.size();
}

void GraphCache::launch(cudaStream_t stream, const Calls& calls) {
  for (const auto& call : calls) call->issue(stream);
  counts_.launched += calls.size();
}

// Null where it cannot be done: what was captured is then dropped, and the stream is as it was.
cudaGraphExec_t GraphCache::capture(cudaStream_t stream, const Calls& calls) {
  STP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  bool complete = true;
  try {
    for (const auto& call : calls) call->issue(stream);
  } catch (const std::exception&) {
    complete = false;  // what is wrong with the call itself shows when it is issued without a graph
  }
  cudaGraph_t graph = nullptr;
  complete = cudaStreamEndCapture(stream, &graph) == cudaSuccess && complete;
  cudaGraphExec_t made = nullptr;
  if (complete && cudaGraphInstantiate(&made, graph, 0) != cudaSuccess) made = nullptr;
  if (graph != nullptr) cudaGraphDestroy(graph);
  static_cast<void>(cudaGetLastError());
  return made;
}

}  // namespace stp::cuda

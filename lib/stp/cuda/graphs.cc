#include "stp/cuda/graphs.h"

#include <exception>

#include "stp/cuda/cuda_check.h"

namespace stp::cuda {
namespace {

/// A graph of one kernel would save nothing.
constexpr size_t kFewestCalls = 2;

// Returns null if capture is impossible; the stream is then unchanged.
cudaGraph_t capture(cudaStream_t stream, const std::vector<GraphCall>& calls) {
  STP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  bool complete = true;
  try {
    for (const GraphCall& call : calls) call.launch(stream);
  } catch (const std::exception&) {
    complete = false;  // an error of the call itself shows when it is launched without a graph
  }
  cudaGraph_t graph = nullptr;
  complete = cudaStreamEndCapture(stream, &graph) == cudaSuccess && complete;
  if (complete) return graph;
  if (graph != nullptr) cudaGraphDestroy(graph);
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

}  // namespace

// CUDA frees a graph only after the GPU has finished it.
Graphs::~Graphs() {
  for (const auto& [kernels, entry] : entries_)
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
}

void Graphs::launch(cudaStream_t stream, const std::vector<GraphCall>& calls) {
  if (calls.size() < kFewestCalls) return launch_alone(stream, calls);
  std::vector<const void*> kernels;
  for (const GraphCall& call : calls) kernels.push_back(call.kernel);
  const auto [found, is_new] = entries_.try_emplace(std::move(kernels));
  Entry& entry = found->second;
  if (is_new || entry.refused) return launch_alone(stream, calls);
  if (!prepare(stream, calls, entry)) {
    entry.refused = true;
    ++counts_.refused;
    return launch_alone(stream, calls);
  }
  STP_CUDA(cudaGraphLaunch(entry.graph, stream));
  counts_.in_graphs += calls.size();
}

void Graphs::launch_alone(cudaStream_t stream, const std::vector<GraphCall>& calls) {
  for (const GraphCall& call : calls) call.launch(stream);
  counts_.alone += calls.size();
}

bool Graphs::prepare(cudaStream_t stream, const std::vector<GraphCall>& calls, Entry& entry) {
  const cudaGraph_t graph = capture(stream, calls);
  if (graph == nullptr) return false;
  cudaGraphExecUpdateResultInfo result{};
  bool ready = entry.graph != nullptr && cudaGraphExecUpdate(entry.graph, graph, &result) == cudaSuccess;
  if (!ready) {
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
    entry.graph = nullptr;
    ready = cudaGraphInstantiate(&entry.graph, graph, 0) == cudaSuccess;
    if (!ready) entry.graph = nullptr;
    counts_.instantiated += ready ? 1 : 0;
  }
  cudaGraphDestroy(graph);
  static_cast<void>(cudaGetLastError());  // clears the errors of failed calls
  return ready;
}

}  // namespace stp::cuda

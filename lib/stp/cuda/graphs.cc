#include "stp/cuda/graphs.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "stp/cuda/cuda_check.h"

namespace stp::cuda {
namespace {

/// A graph of one kernel would save nothing.
constexpr size_t kFewestCalls = 2;
/// Graphs of one sequence of kernels, with other arguments each.
constexpr size_t kMostGraphs = 256;
/// From so many on, kernels are launched without a graph if more than a tenth of the updates is refused.
constexpr uint64_t kFewestRemade = 4;

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
    for (const auto& [arguments, graph] : entry.graphs) cudaGraphExecDestroy(graph);
}

void Graphs::launch(cudaStream_t stream, const std::vector<GraphCall>& calls) {
  const auto is_new = [](const GraphCall& call) { return call.arguments.empty(); };
  if (calls.size() < kFewestCalls || std::ranges::any_of(calls, is_new)) return launch_alone(stream, calls);
  std::vector<const void*> kernels;
  for (const GraphCall& call : calls) kernels.push_back(call.kernel);
  const auto [found, is_first] = entries_.try_emplace(std::move(kernels));
  Entry& entry = found->second;
  if (is_first || entry.refused) return launch_alone(stream, calls);
  const cudaGraphExec_t graph = prepare(stream, calls, entry);
  if (graph == nullptr) {
    entry.refused = true;
    ++counts_.refused;
    return launch_alone(stream, calls);
  }
  STP_CUDA(cudaGraphLaunch(graph, stream));
  counts_.in_graphs += calls.size();
}

void Graphs::launch_alone(cudaStream_t stream, const std::vector<GraphCall>& calls) {
  for (const GraphCall& call : calls) call.launch(stream);
  counts_.alone += calls.size();
}

// Graphs must not fill the memory: from some number on, new arguments take the graph of others.
cudaGraphExec_t Graphs::prepare(cudaStream_t stream, const std::vector<GraphCall>& calls, Entry& entry) {
  std::string arguments;
  for (const GraphCall& call : calls) arguments += call.arguments;
  const auto known = entry.graphs.find(arguments);
  if (known != entry.graphs.end()) return known->second;
  const cudaGraph_t graph = capture(stream, calls);
  if (graph == nullptr) return nullptr;
  cudaGraphExec_t made = nullptr;
  if (entry.graphs.size() >= kMostGraphs) {
    made = entry.graphs.extract(entry.graphs.begin()).mapped();
    cudaGraphExecUpdateResultInfo result{};
    ++entry.updates;
    if (cudaGraphExecUpdate(made, graph, &result) != cudaSuccess) {
      cudaGraphExecDestroy(std::exchange(made, nullptr));
      ++entry.remade;
    }
  }
  const bool pays = entry.remade < kFewestRemade || entry.remade * 10 <= entry.updates;
  if (made == nullptr && pays) static_cast<void>(cudaGraphInstantiate(&made, graph, 0));
  cudaGraphDestroy(graph);
  static_cast<void>(cudaGetLastError());  // clears the errors of failed calls
  if (made != nullptr) entry.graphs.emplace(std::move(arguments), made);
  return made;
}

}  // namespace stp::cuda

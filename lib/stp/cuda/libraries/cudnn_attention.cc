#include "stp/cuda/libraries/cudnn_attention.h"

#ifdef STP_HAVE_CUDNN_FRONTEND

#include <cudnn_frontend.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/libraries/cudnn_library.h"

namespace stp::cuda {
namespace {

namespace fe = cudnn_frontend;

// Names of the tensors in both graphs.
enum : int64_t { kQ = 1, kK, kV, kOut, kStatistics, kOutGradient, kQGradient, kKGradient, kVGradient };

void check(fe::error_t error, const char* call) {
  if (error.is_bad()) throw CudaError(call, error.get_message(), __FILE__, __LINE__);
}

// One direction of one shape. It keeps no pointer: each run binds tensors to their names.
struct Plan {
  fe::graph::Graph graph;
  std::optional<size_t> workspace;  // bytes; none if it is not supported
};

// One head's rows of a matrix whose rows are `columns` elements long, as samples × heads × tokens × elements.
fe::graph::Tensor_attributes heads(int64_t name, const AttentionShape& shape, int count, int64_t columns) {
  return fe::graph::Tensor_attributes()
      .set_uid(name)
      .set_data_type(fe::DataType_t::BFLOAT16)
      .set_dim({shape.batch, count, shape.seq, shape.head_dim})
      .set_stride({shape.seq * columns, shape.head_dim, columns, 1});
}

void set_result(const std::shared_ptr<fe::graph::Tensor_attributes>& tensor,
                const fe::graph::Tensor_attributes& like) {
  tensor->set_output(true)
      .set_uid(like.get_uid())
      .set_data_type(fe::DataType_t::BFLOAT16)
      .set_dim(like.get_dim())
      .set_stride(like.get_stride());
}

std::vector<int64_t> statistics_dim(const AttentionShape& shape) {
  return {shape.batch, shape.q_heads, shape.seq, 1};
}
std::vector<int64_t> statistics_stride(const AttentionShape& shape) {
  return {int64_t{shape.q_heads} * shape.seq, shape.seq, 1, 1};
}

void set_types(fe::graph::Graph& graph) {
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

float scale_of(const AttentionShape& shape) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
}

void describe_forward(fe::graph::Graph& graph, const AttentionShape& shape) {
  set_types(graph);
  const int64_t columns = shape.qkv_columns();
  const auto [out, statistics] = graph.sdpa(graph.tensor(heads(kQ, shape, shape.q_heads, columns)),
                                            graph.tensor(heads(kK, shape, shape.kv_heads, columns)),
                                            graph.tensor(heads(kV, shape, shape.kv_heads, columns)),
                                            fe::graph::SDPA_attributes()
                                                .set_name("attention")
                                                .set_generate_stats(true)
                                                .set_causal_mask(true)
                                                .set_attn_scale(scale_of(shape)));
  set_result(out, heads(kOut, shape, shape.q_heads, shape.q_columns()));
  statistics->set_output(true)
      .set_uid(kStatistics)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim(statistics_dim(shape))
      .set_stride(statistics_stride(shape));
}

void describe_backward(fe::graph::Graph& graph, const AttentionShape& shape) {
  set_types(graph);
  const int64_t columns = shape.qkv_columns();
  const auto statistics = graph.tensor(fe::graph::Tensor_attributes()
                                           .set_uid(kStatistics)
                                           .set_data_type(fe::DataType_t::FLOAT)
                                           .set_dim(statistics_dim(shape))
                                           .set_stride(statistics_stride(shape)));
  const auto [q_gradient, k_gradient, v_gradient] = graph.sdpa_backward(
      graph.tensor(heads(kQ, shape, shape.q_heads, columns)),
      graph.tensor(heads(kK, shape, shape.kv_heads, columns)),
      graph.tensor(heads(kV, shape, shape.kv_heads, columns)),
      graph.tensor(heads(kOut, shape, shape.q_heads, shape.q_columns())),
      graph.tensor(heads(kOutGradient, shape, shape.q_heads, shape.q_columns())), statistics,
      fe::graph::SDPA_backward_attributes()
          .set_name("attention_backward")
          .set_causal_mask(true)
          .set_deterministic_algorithm(true)
          .set_attn_scale(scale_of(shape)));
  set_result(q_gradient, heads(kQGradient, shape, shape.q_heads, columns));
  set_result(k_gradient, heads(kKGradient, shape, shape.kv_heads, columns));
  set_result(v_gradient, heads(kVGradient, shape, shape.kv_heads, columns));
}

// The deterministic backward of older versions takes workspace for all scores; more than this is refused.
constexpr int64_t kMostWorkspace = int64_t{1} << 30;

// Builds a plan's graph. Returns "", or why cuDNN does not support it: this backend's own kernels then run.
std::string build(Plan& plan, cudnnHandle_t handle) {
  int64_t bytes = 0;
  fe::graph::Graph& graph = plan.graph;
  fe::error_t error = graph.validate();
  if (error.is_good()) error = graph.build_operation_graph(handle);
  if (error.is_good()) error = graph.create_execution_plans({fe::HeurMode_t::A});
  graph.deselect_workspace_greater_than(kMostWorkspace);  // another plan may need less
  if (error.is_good()) error = graph.check_support();
  if (error.is_good()) error = graph.build_plans();
  if (error.is_good()) error = graph.get_workspace_size(bytes);
  if (error.is_bad()) return error.get_message();
  if (bytes > kMostWorkspace) return "it needs " + std::to_string(bytes >> 20) + " MiB of workspace";
  plan.workspace = static_cast<size_t>(bytes);
  return "";
}

// cuDNN takes read-only tensors as mutable pointers, too.
void* bind(const __nv_bfloat16* pointer, int64_t offset = 0) {
  return const_cast<__nv_bfloat16*>(pointer + offset);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

class FrontendAttention : public CudnnAttention {
 public:
  FrontendAttention() { STP_CUDNN(cudnnCreate(&handle_)); }
  FrontendAttention(const FrontendAttention&) = delete;
  FrontendAttention& operator=(const FrontendAttention&) = delete;
  ~FrontendAttention() override { cudnnDestroy(handle_); }

  std::optional<size_t> forward_workspace(const AttentionShape& shape) override {
    return plan(Direction::forward, shape).workspace;
  }
  std::optional<size_t> backward_workspace(const AttentionShape& shape) override {
    return plan(Direction::backward, shape).workspace;
  }

  void forward(Stream& stream, const AttentionShape& shape, const __nv_bfloat16* qkv, __nv_bfloat16* out,
               float* log_sum_exp, void* workspace) override {
    const int64_t k = shape.q_columns(), v = k + shape.kv_columns();
    run(plan(Direction::forward, shape).graph, stream,
        {{kQ, bind(qkv)}, {kK, bind(qkv, k)}, {kV, bind(qkv, v)}, {kOut, out}, {kStatistics, log_sum_exp}},
        workspace);
  }

  void backward(Stream& stream, const AttentionShape& shape, const __nv_bfloat16* qkv,
                const __nv_bfloat16* out, const float* log_sum_exp, const __nv_bfloat16* out_gradient,
                __nv_bfloat16* qkv_gradient, void* workspace) override {
    const int64_t k = shape.q_columns(), v = k + shape.kv_columns();
    run(plan(Direction::backward, shape).graph, stream,
        {{kQ, bind(qkv)},
         {kK, bind(qkv, k)},
         {kV, bind(qkv, v)},
         {kOut, bind(out)},
         {kOutGradient, bind(out_gradient)},
         {kStatistics, const_cast<float*>(log_sum_exp)},  // NOLINT(cppcoreguidelines-pro-type-const-cast)
         {kQGradient, qkv_gradient},
         {kKGradient, qkv_gradient + k},
         {kVGradient, qkv_gradient + v}},
        workspace);
  }

 private:
  enum class Direction { forward, backward };

  Plan& plan(Direction direction, const AttentionShape& shape) {
    std::unique_ptr<Plan>& known =
        plans_[{direction, shape.batch, shape.seq, shape.q_heads, shape.kv_heads, shape.head_dim}];
    if (known) return *known;
    auto made = std::make_unique<Plan>();
    if (shape.tokens() > 0) {
      const bool forward = direction == Direction::forward;
      forward ? describe_forward(made->graph, shape) : describe_backward(made->graph, shape);
      if (const std::string refusal = build(*made, handle_); !refusal.empty())
        std::fprintf(
            stderr, "%s of attention of %d tokens in heads of %d by our own kernels; cuDNN %zu: %s\n",
            forward ? "forward" : "backward", shape.seq, shape.head_dim, cudnnGetVersion(), refusal.c_str());
    }
    known = std::move(made);
    return *known;
  }

  // The graph of a shape stays, so it identifies the shape's kernels.
  void run(const fe::graph::Graph& graph, Stream& stream, const std::unordered_map<int64_t, void*>& tensors,
           void* workspace) {
    const auto arguments = [&] {
      std::string bytes = bytes_of_values(workspace);
      for (const auto& [name, at] : tensors) bytes += bytes_of_values(name, at);
      return bytes;
    };
    cuda_stream(stream).launch(&graph, arguments, [=, this, &graph](cudaStream_t on) {
      STP_CUDNN(cudnnSetStream(handle_, on));
      auto bound = tensors;
      check(graph.execute(handle_, bound, workspace), "cudnn_frontend::graph::Graph::execute");
    });
  }

  cudnnHandle_t handle_ = nullptr;
  std::map<std::tuple<Direction, int, int, int, int, int>, std::unique_ptr<Plan>> plans_;
};

}  // namespace

std::string lack_of_cudnn_attention() {
  const char* const wanted =
      std::getenv("STP_CUDNN");  // NOLINT(concurrency-mt-unsafe): nothing here sets any
  return wanted != nullptr && std::string(wanted) == "0" ? "STP_CUDNN is 0" : load_cudnn();
}

std::string cudnn_version() { return std::to_string(cudnnGetVersion()); }

std::unique_ptr<CudnnAttention> make_cudnn_attention() {
  if (!lack_of_cudnn_attention().empty()) return nullptr;
  return std::make_unique<FrontendAttention>();
}

}  // namespace stp::cuda

#else

namespace stp::cuda {

std::string lack_of_cudnn_attention() { return "this build has no headers of cudnn-frontend"; }
std::string cudnn_version() { return ""; }
std::unique_ptr<CudnnAttention> make_cudnn_attention() { return nullptr; }

}  // namespace stp::cuda

#endif

// The vocabulary-parallel embedding.
#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/cuda/kernels/device.cuh"

namespace stp::cuda {
namespace {

constexpr int kEmbeddingThreads = 256;

template <typename T, int N>
__global__ void embedding_forward_kernel(int64_t rows, int columns, const int32_t* tokens, const T* table,
                                         int64_t first, int64_t entries, T* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * N;
  if (i >= columns) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int64_t entry = tokens[row] - first;
    const bool ours = entry >= 0 && entry < entries;
    store(out + row * columns + i, ours ? load<N>(table + entry * columns + i) : Values<N>{});
  }
}

// One block (per kEmbeddingThreads · N columns) makes the sum for an entry, in the order of the tokens: the
// block of the first token that names the entry. The other blocks find that they are not first and end. The
// search through the tokens costs at most rows² comparisons, but no sort and no memory.
template <typename T, int N>
__global__ void __launch_bounds__(kEmbeddingThreads)
    embedding_backward_kernel(int rows, int columns, const int32_t* tokens, const T* gradient, int64_t first,
                              int64_t entries, float* table_gradient) {
  __shared__ int found[kEmbeddingThreads];            // tokens of one turn that name the entry, in order
  __shared__ int of_warp[kEmbeddingThreads / kWarp];  // how many of them each warp has
  const int me = static_cast<int>(threadIdx.x), lane = me % kWarp, warp = me / kWarp;
  const int column = (static_cast<int>(blockIdx.x) * kEmbeddingThreads + me) * N;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    const int32_t token = tokens[row];
    const int64_t entry = token - first;
    if (entry < 0 || entry >= entries) continue;
    bool earlier = false;
    for (int j = me; j < row && !earlier; j += kEmbeddingThreads) earlier = tokens[j] == token;
    if (__syncthreads_or(earlier ? 1 : 0) != 0) continue;
    Values<N> sum{};
    for (int begin = row; begin < rows; begin += kEmbeddingThreads) {
      const int j = begin + me;
      const bool same = j < rows && tokens[j] == token;
      const unsigned lanes = __ballot_sync(kAllLanes, same);
      if (lane == 0) of_warp[warp] = __popc(lanes);
      __syncthreads();
      int before = 0, count = 0;
      for (int w = 0; w < kEmbeddingThreads / kWarp; ++w) {
        if (w < warp) before += of_warp[w];
        count += of_warp[w];
      }
      if (same) found[before + __popc(lanes & ((1U << lane) - 1))] = j;
      __syncthreads();
      if (column < columns)
#pragma unroll 4
        for (int k = 0; k < count; ++k) {
          const Values<N> v = load<N>(gradient + int64_t{found[k]} * columns + column);
#pragma unroll
          for (int e = 0; e < N; ++e) sum.at[e] += v.at[e];
        }
    }
    if (column < columns) {
      float* const to = table_gradient + entry * columns + column;
      Values<N> total = load<N>(to);
#pragma unroll
      for (int e = 0; e < N; ++e) total.at[e] += sum.at[e];
      store(to, total);
    }
  }
}

}  // namespace

void CudaKernels::run(Stream& stream, const kernel::EmbeddingForward& k) {
  with_rows(k, k.out, [&]<typename T>(T) {
    by_width<T>(k.out.columns, [&](auto width) {
      const auto kernel = embedding_forward_kernel<T, width>;
      start(stream, kernel, tile_shape(kernel, k.out.rows, k.out.columns / width), k.out.rows,
            static_cast<int>(k.out.columns), data<int32_t>(k.tokens), data<T>(k.table), k.first, k.table.rows,
            data<T>(k.out));
    });
  });
}

void CudaKernels::run(Stream& stream, const kernel::EmbeddingBackward& k) {
  const TensorView& g = k.out_gradient;
  with_rows(k, g, [&]<typename T>(T) {
    by_width<T>(g.columns, [&](auto width) {
      // One block per token, as far as the grid allows. Most of them end at once.
      const LaunchShape shape{dim3(narrow(divide_up<int64_t>(g.columns, kEmbeddingThreads * width)),
                                   narrow(std::min<int64_t>(g.rows, 65535))),
                              kEmbeddingThreads};
      start(stream, embedding_backward_kernel<T, width>, shape, static_cast<int>(g.rows),
            static_cast<int>(g.columns), data<int32_t>(k.tokens), data<T>(g), k.first, k.table_gradient.rows,
            data<float>(k.table_gradient));
    });
  });
}

}  // namespace stp::cuda

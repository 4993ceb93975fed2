// Paced communication: as many blocks as NCCL's kernels would take, that move the bytes and wait for the
// time.
#include "stp/cuda/paced.h"

#include "stp/cuda/device.cuh"
#include "stp/cuda/device_clock.cuh"

namespace stp::launch {
namespace {

using namespace gpu;

constexpr int kThreads = 512;

/// By all threads of the block. Whole words where both ends are aligned to them.
__device__ void copy(unsigned char* to, const unsigned char* from, int64_t bytes) {
  int64_t words = 0;
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0) {
    words = bytes / 16;
    for (int64_t i = threadIdx.x; i < words; i += blockDim.x) store_16(to + i * 16, load_16(from + i * 16));
  }
  for (int64_t i = words * 16 + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

template <typename T>
__device__ void fill_received(void* to, int64_t bytes) {
  auto* const numbers = static_cast<T*>(to);
  for (int64_t i = threadIdx.x; i < bytes / static_cast<int64_t>(sizeof(T)); i += blockDim.x)
    numbers[i] = from_float<T>(received_number(i));
}

__device__ void fill_received(DType type, void* to, int64_t bytes) {
  switch (type) {
    case DType::f32:
      return fill_received<float>(to, bytes);
    case DType::f64:
      return fill_received<double>(to, bytes);
    case DType::bf16:
      return fill_received<bf16>(to, bytes);
    case DType::i32:
      break;
  }
  for (int64_t i = threadIdx.x; i < bytes; i += blockDim.x) static_cast<unsigned char*>(to)[i] = 0;
}

/// The block goes on when all its threads are here and the time has come.
__device__ void wait_until(uint64_t start, double due_ns) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto due = start + static_cast<uint64_t>(ceil(due_ns));
    while (nanoseconds() < due) {
    }
  }
  __syncthreads();
}

/// The bytes [begin, end) of the whole, by way of the link buffer.
__device__ void move_piece(const PacedMove& move, unsigned char* link, int64_t begin, int64_t end) {
  const auto* const in = static_cast<const unsigned char*>(move.in);
  auto* const out = static_cast<unsigned char*>(move.out);
  const int64_t share = move.pace.bytes / move.size;
  switch (move.kind) {
    case CallKind::all_reduce: {
      copy(link, in + begin, end - begin);
      __syncthreads();
      // A ring's 2 (n − 1) / n of the bytes: all of them once, and of n − 2 in n members' shares once more.
      const int64_t again = (end - begin) * (move.size - 2) / move.size / 16 * 16;
      unsigned char* const other = link + kPacedPiece;
      copy(other, link, again);
      __syncthreads();
      copy(out + begin, other, again);
      copy(out + begin + again, link + again, end - begin - again);
      break;
    }
    case CallKind::all_gather:
      for (int64_t at = begin; at < end;) {
        const int64_t count = min(end, (at / share + 1) * share) - at;
        copy(link + (at - begin), in + at % share, count);
        at += count;
      }
      __syncthreads();
      copy(out + begin, link, end - begin);
      break;
    case CallKind::reduce_scatter: {
      copy(link, in + begin, end - begin);
      const int64_t mine = move.index * share;
      const int64_t first = max(begin, mine), last = min(end, mine + share);
      if (first < last) copy(out + (first - mine), in + first, last - first);
      break;
    }
    case CallKind::send:
      copy(link, in + begin, end - begin);
      break;
    case CallKind::receive:
      copy(out + begin, link, end - begin);
      break;
  }
}

__global__ void __launch_bounds__(kThreads) paced_kernel(const __grid_constant__ PacedMove move) {
  __shared__ uint64_t began;
  if (threadIdx.x == 0) began = nanoseconds();
  __syncthreads();
  const uint64_t start = began;
  const int cta = static_cast<int>(blockIdx.x);
  const Pace& pace = move.pace;
  auto* const link = static_cast<unsigned char*>(move.link) + cta * 2 * kPacedPiece;
  if (move.kind == CallKind::receive) fill_received(move.type, link, min(kPacedPiece, pace.span));
  __syncthreads();
  for (int64_t i = 0; i < pace.pieces(cta); ++i) {
    move_piece(move, link, pace.piece_begin(cta, i), pace.piece_end(cta, i));
    wait_until(start, pace.due_ns(cta, i));
  }
  wait_until(start, pace.total_ns());
}

}  // namespace

size_t paced_link_bytes(const Pace& pace) { return static_cast<size_t>(pace.ctas * 2 * kPacedPiece); }

void paced(cudaStream_t stream, const PacedMove& move) {
  start(paced_kernel, {narrow(move.pace.ctas), kThreads}, stream, move);
}

}  // namespace stp::launch

// The features of the GPU that kernels use beyond C++: launch, dynamic shared memory, values of other lanes,
// asynchronous copies, and tensor cores. tests/support/simt.h has the same for the host.
#pragma once

#include <cuda_runtime.h>

#include "stp/cuda/kernels/launch.h"

namespace stp::cuda {

template <typename... Parameters>
cudaError_t launch_kernel(const cudaLaunchConfig_t& config, void (*kernel)(Parameters...),
                          Parameters... parameters) {
  return cudaLaunchKernelEx(&config, kernel, parameters...);
}

__device__ inline void* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char stp_dynamic_shared[];
  return stp_dynamic_shared;
}

__device__ inline uint4 load_16(const void* from) { return *static_cast<const uint4*>(from); }
__device__ inline void store_16(void* to, uint4 words) { *static_cast<uint4*>(to) = words; }

/// One value from each lane of a warp. All lanes construct it together, and read it together.
template <typename V>
struct LaneValues {
  V own;
  __device__ V operator[](int lane) const { return __shfl_sync(~0U, own, lane); }  // ~0U: all lanes
};

// Asynchronous copies (PTX cp.async): a thread's copies up to commit_copies() are one group; wait_copies<n>()
// waits for all but the n youngest groups of the calling thread. Other threads see the data after a barrier.

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// Copies 16 bytes to shared memory. If not `valid`, it writes zeros and reads nothing.
__device__ inline void copy_16_async(void* shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(shared)), "l"(global),
               "r"(bytes)
               : "memory");
}
/// The same for 4 bytes.
__device__ inline void copy_4_async(void* shared, const void* global, bool valid) {
  const int bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(shared)), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kGroups>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory");
}

// Fragments of the tensor cores (PTX ISA, "Matrix fragments for mma.m16n8k16"): with g = lane / 4 and t =
// lane % 4, the words of a lane hold two neighbours each,
//   a[0], a[1]: rows g and g + 8 of A, columns 2t, 2t + 1; a[2], a[3]: the same rows, columns 2t + 8, 2t + 9
//   b[0], b[1]: column g of B, rows 2t, 2t + 1, and 2t + 8, 2t + 9
//   c[0], c[1]: row g of C, columns 2t, 2t + 1; c[2], c[3]: row g + 8

/// Loads four 8 × 8 matrices of 16-bit elements. Lane l gives the address of row l % 8 of matrix l / 8, and
/// gets in words[i] the elements 2t, 2t + 1 of row g of matrix i.
__device__ inline void load_matrices(uint32_t (&words)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(shared_row))
               : "memory");
}
/// The same for transposed matrices: element g of rows 2t and 2t + 1.
__device__ inline void load_matrices_transposed(uint32_t (&words)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(shared_row))
               : "memory");
}
/// c += a · b: bf16 products, float32 sums.
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace stp::cuda

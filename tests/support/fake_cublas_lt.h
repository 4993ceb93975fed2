// A cuBLASLt without a device, in place of lib/stp/cuda/libraries/cublas_lt_api.cc, on the runtime of
// fake_cuda.h: GEMMs by plain loops when their stream comes to them, by kernels that take as many of its
// steps as a test says. Stricter than cuBLASLt: attributes of a wrong size, layouts that do not fit and
// workspaces that are too small are errors, and addresses less aligned than the heuristic was told.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace stp::fake_cublas_lt {

/// One of the kernels that there are for any GEMM.
struct Algorithm {
  int steps = 1;               // of the device
  size_t workspace_bytes = 0;  // all of which it writes to
  cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
};

/// As the heuristic was asked.
struct Question {
  int most_algorithms = 0;
  int multiprocessors = 0;  // 0: not said
  size_t workspace_bytes = 0;
  uint32_t reductions = 0;
  std::array<uint32_t, 4> alignments{};  // of the library's a, b, c and d
};

struct State {
  std::vector<Algorithm> algorithms{{}};           // best first, by the heuristic
  cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;   // of the heuristic
  cublasStatus_t outcome = CUBLAS_STATUS_SUCCESS;  // of GEMMs
  // Shapes that there is no kernel for, as the backend has them: m x n x k.
  std::function<bool(int64_t m, int64_t n, int64_t k)> refuses = {};
  std::vector<Question> questions;
  std::vector<int> gemms;    // the algorithm of each, in the order of the calls
  std::vector<float> betas;  // of the same
  int alive = 0;             // handles, descriptors, layouts and preferences
};

/// Of the calling program, whose tests set and read it while nothing else runs.
State& state();

}  // namespace stp::fake_cublas_lt

// GEMMs as the backend asks cuBLASLt for them, on a cuBLASLt without a device: which questions it asks, which
// answer it takes, what it does where there is none. Their numbers are compared by tests/kernels.
#include "stp/cuda/libraries/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "stp/device/bfloat16.h"
#include "support/cuda_on_host.h"
#include "support/fake_cublas_lt.h"
#include "support/refusal.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class Gemms : public testing_support::CudaOnHost {
 protected:
  Gemms() {
    stream_.reset();
    backend_.reset();
    fake_cublas_lt::state() = {};
    start({.deadline_s = kNever});
  }
  ~Gemms() override {
    stream_.reset();
    backend_.reset();
    EXPECT_EQ(fake_cublas_lt::state().alive, 0);
    fake_cublas_lt::state() = {};  // what it answers here is not for tests of other backends
  }
  void run(Gemm& gemm, const GemmProblem& problem, const GemmOperands& operands) {
    stream().give(gemm.prepare(stream(), problem, operands));
  }
  // A GEMM of zeros, in memory as the device has it: kernels are chosen by alignment.
  void run_zeros(Gemm& gemm, const GemmProblem& problem, float beta = 0) {
    alignas(256) static std::array<float, 64> a, b, c;
    run(gemm, problem, {1, beta, a.data(), b.data(), c.data(), c.data()});
    device().synchronize();
  }
};

GemmProblem problem_of(int64_t m, int64_t n, int64_t k, DType type = DType::bf16,
                       DType c_type = DType::bf16) {
  return {{.transpose_a = false, .transpose_b = false, .m = m, .n = n, .k = k}, type, c_type};
}
const GemmProblem kFloats = problem_of(2, 3, 4, DType::f32, DType::f32);

// As weight gradients are summed over the microbatches.
TEST_F(Gemms, AreAddedToFloatsThatAreThere) {
  fake_cublas_lt::state().algorithms = {{.steps = 3}, {}, {.steps = 2}};
  Gemm gemm(device(), {.time_candidates = true});
  const std::vector<Bfloat16> a(4, Bfloat16(0.5F)), b(4, Bfloat16(1));
  std::vector<float> c{1000, 2000, 3000, 4000};
  for (int i = 0; i < 3; ++i)
    run(gemm, problem_of(2, 2, 2, DType::bf16, DType::f32), {1, 1, a.data(), b.data(), c.data(), c.data()});
  device().synchronize();
  EXPECT_THAT(c, ElementsAre(1003, 2003, 3003, 4003));
  EXPECT_THAT(fake_cublas_lt::state().betas, Each(1)) << "trials are of the same problem";
}

// cuBLASLt takes 256 bytes for granted, where a view of rows may begin anywhere.
TEST_F(Gemms, AskForKernelsThatTakeTheirAddresses) {
  alignas(256) std::array<Bfloat16, 256> memory{};
  Gemm gemm(device(), {});
  const auto run_at = [&](size_t a, size_t b, size_t c, size_t from) {
    Bfloat16* const at = memory.data();
    run(gemm, problem_of(2, 2, 2), {1, 1, at + a, at + b, at + c, at + from});
    device().synchronize();
    return fake_cublas_lt::state().questions.back().alignments;
  };
  EXPECT_THAT(run_at(0, 128, 192, 192), ElementsAre(256, 256, 128, 128));  // the library's a is our b
  EXPECT_THAT(run_at(8, 4, 128, 2), ElementsAre(8, 16, 4, 4));
  EXPECT_EQ(fake_cublas_lt::state().questions.size(), 2U);
  run_at(8, 4, 2, 2);
  EXPECT_EQ(fake_cublas_lt::state().questions.size(), 2U);
}

TEST_F(Gemms, AskOnceForEveryProblem) {
  Gemm gemm(device(), {});
  std::vector<GemmProblem> problems{problem_of(2, 3, 4), problem_of(3, 2, 4), problem_of(2, 4, 3),
                                    problem_of(2, 3, 4, DType::bf16, DType::f32), kFloats};
  problems.push_back(problems[0]);
  problems.back().shape.transpose_a = true;
  problems.push_back(problems[0]);
  problems.back().shape.transpose_b = true;
  const std::vector<float> in(100, 0);
  std::vector<float> out(100);
  for (int round = 0; round < 3; ++round)
    for (const GemmProblem& problem : problems)
      run(gemm, problem, {1, 0, in.data(), in.data(), out.data(), out.data()});
  device().synchronize();
  EXPECT_EQ(fake_cublas_lt::state().questions.size(), problems.size());
  EXPECT_EQ(fake_cublas_lt::state().gemms.size(), 3 * problems.size());
  for (const auto& question : fake_cublas_lt::state().questions) {
    EXPECT_EQ(question.most_algorithms, 1);
    EXPECT_EQ(question.multiprocessors, 0);
    EXPECT_GE(question.workspace_bytes, size_t{4} << 20);
    EXPECT_EQ(question.reductions, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  }
}

TEST_F(Gemms, AreChosenForTheMultiprocessorsThatAreLeft) {
  Gemm gemm(device(), {.multiprocessors = 116});
  run_zeros(gemm, kFloats);
  ASSERT_EQ(fake_cublas_lt::state().questions.size(), 1U);
  EXPECT_EQ(fake_cublas_lt::state().questions[0].multiprocessors, 116);
}

TEST_F(Gemms, TakeTheFirstAnswerUnlessTheyAreTimed) {
  fake_cublas_lt::state().algorithms = {{.steps = 9}, {.steps = 2}, {.steps = 5}};
  Gemm gemm(device(), {});
  for (int i = 0; i < 2; ++i) run_zeros(gemm, kFloats);
  EXPECT_THAT(fake_cublas_lt::state().gemms, Each(0));
}

TEST_F(Gemms, AreTimedOnceAndTheFastestStays) {
  fake_cublas_lt::state().algorithms = {
      {.steps = 9}, {.steps = 4}, {.steps = 2, .workspace_bytes = 64}, {.steps = 5}};
  Gemm gemm(device(), {.time_candidates = true});
  run_zeros(gemm, kFloats);
  std::vector<int>& gemms = fake_cublas_lt::state().gemms;
  EXPECT_THAT(gemms, AllOf(Contains(0), Contains(1), Contains(2), Contains(3)));
  EXPECT_EQ(gemms.back(), 2);
  gemms.clear();
  for (int i = 0; i < 3; ++i) run_zeros(gemm, kFloats, 1);
  EXPECT_THAT(gemms, ElementsAre(2, 2, 2));
  EXPECT_EQ(fake_cublas_lt::state().questions.size(), 1U);
  EXPECT_EQ(device().memory().scratch(), 64U) << "trials' results are not kept";
}

TEST_F(Gemms, LeaveNoScratchWhereMemoryLacksForTrials) {
  fake_cublas_lt::state().algorithms = {{.steps = 9}, {.steps = 2}};
  Gemm gemm(device(), {.time_candidates = true});
  fake_cuda::fail_next("cudaMallocAsync", cudaErrorMemoryAllocation);
  EXPECT_THROW(run_zeros(gemm, kFloats), OutOfMemory);
  EXPECT_EQ(device().memory().scratch(), 0U);
}

TEST_F(Gemms, ThatTheHeuristicFindsFaultyAreNotRun) {
  fake_cublas_lt::state().algorithms = {{.state = CUBLAS_STATUS_NOT_SUPPORTED}, {.steps = 3}, {.steps = 2}};
  Gemm gemm(device(), {.time_candidates = true});
  run_zeros(gemm, kFloats);
  EXPECT_THAT(fake_cublas_lt::state().gemms, Each(testing::Ge(1)));
  EXPECT_EQ(fake_cublas_lt::state().gemms.back(), 2);
}

class FailingGemms : public Gemms {
 protected:
  std::string failure_of(Gemm& gemm, const GemmProblem& problem) {
    std::vector<float> numbers(100);
    return error_of<std::runtime_error>([&] {
      run(gemm, problem, {1, 0, numbers.data(), numbers.data(), numbers.data(), numbers.data()});
      device().synchronize();
    });
  }
};

// Three ways to say so: no answer, a status, and answers of which none is good.
TEST_F(FailingGemms, ThatThereIsNoKernelForAreNamed) {
  GemmProblem problem = problem_of(2, 3, 4, DType::bf16, DType::f32);
  problem.shape.transpose_b = true;
  const std::string words = "cuBLASLt has no algorithm for the GEMM 2 x 3 x 4, b transposed, bf16 to f32";
  for (const bool timed : {false, true}) {
    Gemm gemm(device(), {.time_candidates = timed});
    fake_cublas_lt::state().algorithms = {};
    EXPECT_EQ(failure_of(gemm, problem), words);
    fake_cublas_lt::state().algorithms = {{}};
    fake_cublas_lt::state().answer = CUBLAS_STATUS_NOT_SUPPORTED;
    EXPECT_EQ(failure_of(gemm, problem), words);
    fake_cublas_lt::state().answer = CUBLAS_STATUS_SUCCESS;
    fake_cublas_lt::state().algorithms = {{.state = CUBLAS_STATUS_NOT_SUPPORTED}};
    EXPECT_EQ(failure_of(gemm, problem), words);
    fake_cublas_lt::state().algorithms = {{}};
    EXPECT_EQ(failure_of(gemm, problem), "") << "no failure is kept for later calls";
    EXPECT_EQ(gemm.lack_of(problem), "");
    fake_cublas_lt::state().refuses = [](int64_t m, int64_t n, int64_t k) {
      return std::tuple(m, n, k) == std::tuple(2, 3, 4);
    };
    EXPECT_EQ(gemm.lack_of(problem), words);
    EXPECT_EQ(gemm.lack_of(problem_of(3, 2, 4)), "");
    fake_cublas_lt::state().refuses = {};
  }
}

TEST_F(FailingGemms, ThatFailOtherwiseNameCallStatusAndPlace) {
  Gemm gemm(device(), {});
  fake_cublas_lt::state().answer = CUBLAS_STATUS_INTERNAL_ERROR;
  EXPECT_THAT(failure_of(gemm, problem_of(2, 3, 4)),
              AllOf(HasSubstr("cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_FAKE"), HasSubstr("gemm.cc:")));
  fake_cublas_lt::state().answer = CUBLAS_STATUS_SUCCESS;
  fake_cublas_lt::state().outcome = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_THAT(failure_of(gemm, problem_of(2, 3, 4)),
              AllOf(HasSubstr("cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED"), HasSubstr("gemm.cc:")));
}

}  // namespace
}  // namespace stp::cuda

// Products as the backend asks cuBLASLt for them, on a cuBLASLt without a device: which questions it asks,
// which answer it takes, what it does where there is none.
#include "stp/cuda/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "stp/cuda/cuda_check.h"
#include "stp/device/bfloat16.h"
#include "support/fake_cublas_lt.h"
#include "support/fake_cuda.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class Products : public testing::Test {
 protected:
  Products() {
    fake_cuda::reset(1);
    fake_cublas_lt::state() = {};
    STP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    STP_CUDA(cudaEventCreateWithFlags(&done, cudaEventDefault));
  }
  ~Products() override {
    EXPECT_EQ(cudaEventDestroy(done), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  // Blocks as the pool of a device gives them, one after the other in the order of one stream.
  ScratchMemory scratch() {
    return {[this](cudaStream_t on, size_t bytes) {
              EXPECT_EQ(on, stream);
              void* const at = std::malloc(bytes);
              taken[at] = bytes;
              return at;
            },
            [this](cudaStream_t on, void* at, size_t bytes) {
              EXPECT_EQ(on, stream);
              EXPECT_EQ(taken.at(at), bytes);
              taken.erase(at);
              given_back.push_back(bytes);
              fake_cuda::launch(on, [at] { std::free(at); });
            }};
  }
  void wait() {
    STP_CUDA(cudaEventRecord(done, stream));
    STP_CUDA(cudaEventSynchronize(done));
  }
  template <typename T>
  std::vector<T> numbers(int64_t count) {
    std::vector<T> all(count);
    for (T& each : all) each = T(static_cast<float>(static_cast<int>(random() % 17) - 8) / 4);
    return all;
  }

  // One product of random small numbers, and what plain loops make of it.
  template <typename T, typename C>
  void expect_product(Gemm& gemm, const GemmShape& shape, double alpha, double beta) {
    const auto [ta, tb, m, n, k, type, c_type] = shape;
    const auto a = numbers<T>(m * k), b = numbers<T>(k * n);
    std::vector<C> c = numbers<C>(m * n);
    std::vector<C> expected = c;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += static_cast<double>(static_cast<float>(a[ta ? l * m + i : i * k + l])) *
                 static_cast<double>(static_cast<float>(b[tb ? j * k + l : l * n + j]));
        C& to = expected[i * n + j];
        to = C(static_cast<float>(alpha * sum +
                                  (beta == 0 ? 0 : beta * static_cast<double>(static_cast<float>(to)))));
      }
    gemm.multiply(stream, shape, alpha, a.data(), b.data(), beta, c.data());
    wait();
    ASSERT_EQ(std::memcmp(c.data(), expected.data(), c.size() * sizeof(C)), 0)
        << m << " x " << n << " x " << k << ", " << ta << tb << ", beta " << beta;
  }

  cudaStream_t stream = nullptr;
  cudaEvent_t done = nullptr;
  std::map<void*, size_t> taken;
  std::vector<size_t> given_back;
  std::mt19937 random{7};
};

GemmShape shape_of(int64_t m, int64_t n, int64_t k, DType type = DType::bf16, DType c_type = DType::bf16) {
  return {.transpose_a = false, .transpose_b = false, .m = m, .n = n, .k = k, .type = type, .c_type = c_type};
}

TEST_F(Products, AreThoseOfPlainLoops) {
  for (const bool search : {false, true}) {
    fake_cublas_lt::state() = {};
    fake_cublas_lt::state().algorithms = {{.workspace_bytes = 100}, {.steps = 2}};
    Gemm gemm({.time_candidates = search}, scratch());
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const double beta : {0.0, 1.0, -0.5}) {
          const GemmShape shape{.transpose_a = ta,
                                .transpose_b = tb,
                                .m = 5,
                                .n = 3,
                                .k = 7,
                                .type = DType::bf16,
                                .c_type = DType::bf16};
          GemmShape wide = shape, floats = shape;
          wide.c_type = floats.type = floats.c_type = DType::f32;
          expect_product<Bfloat16, Bfloat16>(gemm, shape, 0.75, beta);
          expect_product<Bfloat16, float>(gemm, wide, 0.75, beta);
          expect_product<float, float>(gemm, floats, 1, beta);
        }
  }
  EXPECT_EQ(fake_cublas_lt::state().alive, 0);
  EXPECT_TRUE(taken.empty());
}

// As weight gradients are summed over the microbatches: the product of each is added to what is there.
TEST_F(Products, AreAddedToFloatsThatAreThere) {
  fake_cublas_lt::state().algorithms = {{.steps = 3}, {}, {.steps = 2}};
  Gemm gemm({.time_candidates = true}, scratch());
  const std::vector<Bfloat16> a(4, Bfloat16(0.5F)), b(4, Bfloat16(1));
  std::vector<float> c{1000, 2000, 3000, 4000};
  for (int i = 0; i < 3; ++i)
    gemm.multiply(stream, shape_of(2, 2, 2, DType::bf16, DType::f32), 1, a.data(), b.data(), 1, c.data());
  wait();
  EXPECT_THAT(c, ElementsAre(1003, 2003, 3003, 4003));
}

TEST_F(Products, AskOnceForEveryShape) {
  Gemm gemm({}, scratch());
  std::vector<GemmShape> shapes{shape_of(2, 3, 4), shape_of(3, 2, 4), shape_of(2, 4, 3),
                                shape_of(2, 3, 4, DType::bf16, DType::f32),
                                shape_of(2, 3, 4, DType::f32, DType::f32)};
  shapes.push_back(shapes[0]);
  shapes.back().transpose_a = true;
  shapes.push_back(shapes[0]);
  shapes.back().transpose_b = true;
  const std::vector<float> in(100, 0);
  std::vector<float> out(100);
  for (int round = 0; round < 3; ++round)
    for (const GemmShape& shape : shapes)
      gemm.multiply(stream, shape, 1, in.data(), in.data(), 0, out.data());
  wait();
  EXPECT_EQ(fake_cublas_lt::state().questions.size(), shapes.size());
  EXPECT_EQ(fake_cublas_lt::state().products.size(), 3 * shapes.size());
  for (const auto& question : fake_cublas_lt::state().questions) {
    EXPECT_EQ(question.most_algorithms, 1);
    EXPECT_EQ(question.multiprocessors, 0);
    EXPECT_GE(question.workspace_bytes, size_t{4} << 20);
    EXPECT_EQ(question.reductions, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  }
}

TEST_F(Products, AreChosenForTheMultiprocessorsThatAreLeft) {
  Gemm gemm({.multiprocessors = 116}, scratch());
  expect_product<float, float>(gemm, shape_of(2, 3, 4, DType::f32, DType::f32), 1, 0);
  ASSERT_EQ(fake_cublas_lt::state().questions.size(), 1U);
  EXPECT_EQ(fake_cublas_lt::state().questions[0].multiprocessors, 116);
}

TEST_F(Products, TakeTheFirstAnswerUnlessTheyAreTimed) {
  fake_cublas_lt::state().algorithms = {{.steps = 9}, {.steps = 2}, {.steps = 5}};
  Gemm gemm({}, scratch());
  for (int i = 0; i < 2; ++i)
    expect_product<float, float>(gemm, shape_of(2, 3, 4, DType::f32, DType::f32), 1, 0);
  EXPECT_THAT(fake_cublas_lt::state().products, Each(0));
}

TEST_F(Products, AreTimedOnceAndTheFastestStays) {
  fake_cublas_lt::state().algorithms = {
      {.steps = 9}, {.steps = 4}, {.steps = 2, .workspace_bytes = 64}, {.steps = 5}};
  Gemm gemm({.time_candidates = true}, scratch());
  const GemmShape shape = shape_of(2, 3, 4, DType::f32, DType::f32);
  expect_product<float, float>(gemm, shape, 1, 0);
  std::vector<int>& products = fake_cublas_lt::state().products;
  EXPECT_THAT(products,
              AllOf(testing::Contains(0), testing::Contains(1), testing::Contains(2), testing::Contains(3)));
  EXPECT_EQ(products.back(), 2);
  products.clear();
  for (int i = 0; i < 3; ++i) expect_product<float, float>(gemm, shape, 1, 1);
  EXPECT_THAT(products, ElementsAre(2, 2, 2));
  EXPECT_EQ(fake_cublas_lt::state().questions.size(), 1U);
  EXPECT_THAT(given_back, testing::Contains(64U));
  EXPECT_TRUE(taken.empty());
}

TEST_F(Products, ThatTheHeuristicFindsFaultyAreNotRun) {
  fake_cublas_lt::state().algorithms = {{.state = CUBLAS_STATUS_NOT_SUPPORTED}, {.steps = 3}, {.steps = 2}};
  Gemm gemm({.time_candidates = true}, scratch());
  expect_product<float, float>(gemm, shape_of(2, 3, 4, DType::f32, DType::f32), 1, 0);
  EXPECT_THAT(fake_cublas_lt::state().products, Each(testing::Ge(1)));
  EXPECT_EQ(fake_cublas_lt::state().products.back(), 2);
}

std::string failure(Gemm& gemm, cudaStream_t stream, const GemmShape& shape) {
  std::vector<float> numbers(100);
  try {
    gemm.multiply(stream, shape, 1, numbers.data(), numbers.data(), 0, numbers.data());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// Three ways to say so: no answer, a status, and answers of which none is good.
TEST_F(Products, ThatThereIsNoKernelForAreNamed) {
  GemmShape shape = shape_of(2, 3, 4, DType::bf16, DType::f32);
  shape.transpose_b = true;
  const std::string words = "cuBLASLt has no algorithm for the product 2 x 3 x 4, b transposed, bf16 to f32";
  for (const bool search : {false, true}) {
    Gemm gemm({.time_candidates = search}, scratch());
    fake_cublas_lt::state().algorithms = {};
    EXPECT_EQ(failure(gemm, stream, shape), words);
    fake_cublas_lt::state().algorithms = {{}};
    fake_cublas_lt::state().answer = CUBLAS_STATUS_NOT_SUPPORTED;
    EXPECT_EQ(failure(gemm, stream, shape), words);
    fake_cublas_lt::state().answer = CUBLAS_STATUS_SUCCESS;
    fake_cublas_lt::state().algorithms = {{.state = CUBLAS_STATUS_NOT_SUPPORTED}};
    EXPECT_EQ(failure(gemm, stream, shape), words);
    fake_cublas_lt::state().algorithms = {{}};
    EXPECT_EQ(failure(gemm, stream, shape), "") << "no failure is kept for later calls";
  }
  EXPECT_EQ(fake_cublas_lt::state().alive, 0);
}

TEST_F(Products, ThatFailOtherwiseNameCallStatusAndPlace) {
  Gemm gemm({}, scratch());
  fake_cublas_lt::state().answer = CUBLAS_STATUS_INTERNAL_ERROR;
  EXPECT_THAT(failure(gemm, stream, shape_of(2, 3, 4)),
              AllOf(HasSubstr("cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_FAKE"), HasSubstr("gemm.cc:")));
  fake_cublas_lt::state().answer = CUBLAS_STATUS_SUCCESS;
  fake_cublas_lt::state().outcome = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_THAT(failure(gemm, stream, shape_of(2, 3, 4)),
              AllOf(HasSubstr("cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED"), HasSubstr("gemm.cc:")));
}

}  // namespace
}  // namespace stp::cuda

#include "stp/cuda/libraries/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "stp/base/error.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/libraries/cublas_lt_api.h"
#include "stp/cuda/libraries/cudnn_attention.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

TEST(SharedLibrary, ItsFunctionsCanBeCalled) {
  const SharedLibrary math("libm.so.6");
  EXPECT_EQ(math.function<double(double)>("floor")(2.5), 2);
}

TEST(SharedLibrary, OneThatIsNotThereIsNamedWithTheRemedy) {
  EXPECT_THAT([] { SharedLibrary("libstpnothere.so.7"); },
              ThrowsMessage<InputError>(AllOf(StartsWith("libstpnothere.so.7: cannot be loaded"),
                                              HasSubstr("No such file"), HasSubstr("LD_LIBRARY_PATH"))));
}

TEST(SharedLibrary, AFunctionThatIsNotThereIsNamedWithItsLibrary) {
  const SharedLibrary math("libm.so.6");
  EXPECT_THAT([&] { math.function<void()>("stp_not_there"); },
              ThrowsMessage<InputError>(StartsWith("libm.so.6: stp_not_there: no such function")));
}

TEST(SharedLibrary, AFunctionIsThatOfItsName) {
  EXPECT_EQ(SharedLibrary("libm.so.6").function<double(double)>("floor")(2.5), 2);
}

// Errors of a library that is not there are tested above: here that machine skips.
bool is_there(void (*load)()) {
  try {
    load();
  } catch (const InputError& error) {
    return std::string(error.what()).find("cannot be loaded") == std::string::npos;
  }
  return true;
}

TEST(CublasLtApi, HasEveryFunction) {
  if (!is_there([] { cublas_lt(); })) GTEST_SKIP() << "no cuBLASLt";
  CublasLtApi api = cublas_lt();
  // It holds pointers alone, and none is null.
  void* functions[sizeof api / sizeof(void*)];
  static_assert(sizeof functions == sizeof api);
  std::memcpy(functions, &api, sizeof api);
  EXPECT_THAT(functions, testing::Each(testing::NotNull()));
  EXPECT_STREQ(api.cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
}

TEST(CublasLtApi, ErrorsNameTheCall) {
  if (!is_there([] { cublas_lt(); })) GTEST_SKIP() << "no cuBLASLt";
  EXPECT_THAT(
      [] { STP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(nullptr, {}, nullptr, 0)); },
      ThrowsMessage<CudaError>(AllOf(StartsWith("cublasLtMatmulPreferenceSetAttribute: CUBLAS_STATUS_"),
                                     HasSubstr(" at shared_library_test.cc:"))));
}

// A handle needs a GPU: without one, the loaded library says so in its own words.
TEST(CudnnLibrary, AnswersWhereItIs) {
  try {
    if (make_cudnn_attention() == nullptr) GTEST_SKIP() << lack_of_cudnn_attention();
  } catch (const CudaError& error) {
    EXPECT_THAT(error.what(), StartsWith("cudnnCreate: CUDNN_STATUS_"));
  }
}

}  // namespace
}  // namespace stp::cuda

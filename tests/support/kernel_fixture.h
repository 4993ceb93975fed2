// A device whose fresh memory is NaN, for tests that compare kernels in every type with plain loops in
// double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "stp/cpu/cpu_backend.h"
#include "stp/device/kernels.h"
#include "support/rounded.h"

namespace stp::cpu {

using Values = std::vector<double>;
using testing_support::rounded;

// The parameter is the type of activations and weights: X in stp/device/kernel_arguments.h.
class KernelFixture : public testing::TestWithParam<DType> {
 protected:
  // Values that X can hold, so that the plain loops start from the same.
  Values random(int64_t count) {
    std::normal_distribution<double> normal;
    Values values(count);
    for (double& value : values) value = rounded(normal(engine_), type_);
    return values;
  }

  Tensor fresh(int64_t rows, int64_t columns) { return fresh(rows, columns, type_); }
  Tensor fresh(int64_t rows, int64_t columns, DType type) {
    return device_.allocate(*stream_, MemoryKind::working, type, rows, columns);
  }
  Tensor put(int64_t rows, int64_t columns, const Values& values) {
    return put(rows, columns, values, type_);
  }
  // Tensors of S: statistics and sums.
  Tensor put_sums(int64_t rows, int64_t columns, const Values& values) {
    return put(rows, columns, values, sums_);
  }
  Tensor indices(const std::vector<int32_t>& values) {
    Tensor made = fresh(std::ssize(values), 1, DType::i32);
    device_.upload(*stream_, made, std::as_bytes(std::span(values)));
    return made;
  }
  Values get(const Tensor& tensor) { return download_doubles(device_, *stream_, tensor); }
  template <typename Kernel>
  void issue(const Kernel& kernel) {
    device_.kernels().issue(*stream_, kernel);
  }
  // For results about as large as `scale`. bf16 results were computed in f32 and rounded once, with a
  // relative error of at most 2⁻⁸.
  void expect_near(const Tensor& tensor, const Values& plain, double scale = 1) {
    const Values values = get(tensor);
    ASSERT_EQ(values.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i)
      ASSERT_NEAR(values[i], plain[i],
                  scale * (tensor.type == DType::f64 ? 1e-12 : 2e-5) +
                      (tensor.type == DType::bf16 ? 0x1p-8 * std::abs(plain[i]) : 0))
          << "element " << i;
  }

  const DType type_ = GetParam(), sums_ = statistics_type(type_);  // X and S
  std::unique_ptr<Backend> backend_ = make_backend({.world_size = 1, .poison = true});
  Device& device_ = backend_->device(0);
  std::unique_ptr<Stream> stream_ = device_.make_stream("compute", StreamPriority::compute);

 private:
  Tensor put(int64_t rows, int64_t columns, const Values& values, DType type) {
    Tensor made = fresh(rows, columns, type);
    EXPECT_EQ(std::ssize(values), made.elements());
    upload_doubles(device_, *stream_, made, values);
    return made;
  }

  std::mt19937 engine_{1};
};

inline const auto kTypes = testing::Values(DType::f32, DType::f64, DType::bf16);
inline std::string type_name(const testing::TestParamInfo<DType>& test) { return to_string(test.param); }

}  // namespace stp::cpu

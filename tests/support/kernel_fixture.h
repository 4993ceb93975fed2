// A device whose fresh memory is NaN, for tests that compare kernels in every type with plain loops in
// double.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "stp/cpu/cpu_backend.h"
#include "stp/device/bfloat16.h"
#include "stp/device/kernels.h"

namespace stp::cpu {

using Values = std::vector<double>;

// T is the type of activations and weights: X in stp/device/kernels.h. S follows from it.
template <typename T>
class KernelFixture : public testing::Test {
 protected:
  static constexpr DType kType = kTypeOf<T>, kSums = statistics_type(kType);

  // A value rounded to X.
  static double rounded(double value) { return T(static_cast<Wide<T>>(value)); }

  // Values that X can hold, so that the plain loops start from the same.
  Values random(int64_t count) {
    std::normal_distribution<double> normal;
    Values values(count);
    for (double& value : values) value = rounded(normal(engine_));
    return values;
  }

  Tensor fresh(int64_t rows, int64_t columns, DType type = kType) {
    return device_.allocate(*stream_, MemoryKind::working, type, rows, columns);
  }
  Tensor put(int64_t rows, int64_t columns, const Values& values) {
    return upload<T>(fresh(rows, columns), values);
  }
  // Tensors of S: statistics and sums.
  Tensor put_sums(int64_t rows, int64_t columns, const Values& values) {
    return upload<Wide<T>>(fresh(rows, columns, kSums), values);
  }
  Tensor indices(const std::vector<int32_t>& values) {
    return upload<int32_t>(fresh(std::ssize(values), 1, DType::i32), values);
  }
  Values get(const Tensor& tensor) {
    if (tensor.type == DType::f64) return download<double>(tensor);
    return tensor.type == DType::f32 ? download<float>(tensor) : download<Bfloat16>(tensor);
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

  // Of sums that were rounded several times.
  static constexpr double tolerance() {
    return kType == DType::f64 ? 1e-11 : kType == DType::f32 ? 2e-4 : 0.1;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.world_size = 1, .poison = true});
  Device& device_ = backend_->device(0);
  std::unique_ptr<Stream> stream_ = device_.make_stream("compute", StreamPriority::compute);
  Stream& s_ = *stream_;
  Kernels& k_ = device_.kernels();

 private:
  template <typename Element, typename From>
  Tensor upload(Tensor to, const std::vector<From>& values) {
    std::vector<Element> elements;
    for (const From value : values) elements.push_back(Element(static_cast<Wide<Element>>(value)));
    EXPECT_EQ(std::ssize(elements), to.elements());
    device_.upload(*stream_, to, std::as_bytes(std::span(elements)));
    return to;
  }
  template <typename Element>
  Values download(const Tensor& tensor) {
    std::vector<Element> elements(tensor.elements());
    device_.download(*stream_, tensor, std::as_writable_bytes(std::span(elements)));
    return Values(elements.begin(), elements.end());
  }
  std::mt19937 engine_{1};
};

struct TypeName {
  template <typename T>
  static std::string GetName(int /*index*/) {
    return to_string(kTypeOf<T>);
  }
};
using Types = testing::Types<float, double, Bfloat16>;
}  // namespace stp::cpu

#include "kernels/kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "stp/cpu/cpu_backend.h"
#include "stp/cuda/cuda_backend.h"
#include "support/rounded.h"

namespace stp::kernel_cases {
namespace {

Values get(Device& device, Stream& stream, const Tensor& tensor) {
  if (tensor.type != DType::i32) return download_doubles(device, stream, tensor);
  const auto indices = download<int32_t>(device, stream, tensor);
  return {indices.begin(), indices.end()};
}
void put(Device& device, Stream& stream, const Tensor& tensor, const Values& values) {
  if (tensor.type != DType::i32) return upload_doubles(device, stream, tensor, values);
  const std::vector<int32_t> indices(values.begin(), values.end());
  device.upload(stream, tensor, std::as_bytes(std::span(indices)));
}

// The operands' values after `call`.
template <typename TypeOf>
std::vector<Values> results(Device& device, Kernels& kernels, const std::vector<Operand>& operands,
                            TypeOf type_of, const Call& call) {
  const std::unique_ptr<Stream> stream = device.make_stream("compute", StreamPriority::compute);
  Tensors tensors;
  for (const Operand& operand : operands) {
    tensors.push_back(
        device.allocate(*stream, MemoryKind::working, type_of(operand.kind), operand.rows, operand.columns));
    if (operand.role == Role::out || tensors.back().elements() == 0) continue;
    EXPECT_EQ(std::ssize(operand.values), tensors.back().elements());
    put(device, *stream, tensors.back(), operand.values);
  }
  call({kernels, *stream, tensors});
  std::vector<Values> after;
  for (Tensor& tensor : tensors) {
    after.push_back(tensor.elements() == 0 ? Values{} : get(device, *stream, tensor));
    device.release(*stream, tensor);
  }
  device.synchronize();
  return after;
}

double square(std::span<const double> values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

void expect_near(const Values& results, const Values& exact, size_t columns, Tolerance tolerance) {
  ASSERT_EQ(results.size(), exact.size());
  Values errors = results;
  for (size_t i = 0; i < exact.size(); ++i) errors[i] -= exact[i];
  const double norm = square(exact);
  EXPECT_LE(std::sqrt(square(errors)), tolerance.whole * std::sqrt(norm));
  const double mean = norm / static_cast<double>(exact.size());
  for (size_t i = 0; i < exact.size(); i += columns) {
    const double row = square(std::span(exact).subspan(i, columns)) / static_cast<double>(columns);
    for (size_t j = i; j < i + columns; ++j)
      ASSERT_LE(std::abs(errors[j]),
                tolerance.element * (std::abs(exact[j]) + std::sqrt(std::max(row, mean))))
          << "element " << j << " is " << results[j] << ", not " << exact[j];
  }
}

}  // namespace

void KernelCases::SetUp() {
  if (const std::string lack = cuda::lack_of_gpu(); !lack.empty()) GTEST_SKIP() << lack;
  machine_ = std::make_unique<Machine>();
  reference_ = cpu::make_backend({.world_size = 1, .poison = true});
}

DType KernelCases::type_of(Kind kind) const {
  switch (kind) {
    case Kind::x:
      return GetParam();
    case Kind::statistics:
      return statistics_type(GetParam());
    case Kind::total:
      return DType::f64;
    case Kind::index:
      return DType::i32;
  }
  return DType::f64;
}

double KernelCases::rounded(double value, Kind kind) const {
  return testing_support::rounded(value, type_of(kind));
}

Values KernelCases::random(int64_t count, Kind kind, double scale) {
  std::normal_distribution<double> normal(0, scale);
  Values values(count);
  for (double& value : values) value = rounded(normal(engine_), kind);
  return values;
}

std::vector<Values> KernelCases::expect_exact(const std::vector<Operand>& operands, const Call& call,
                                              const Rounded& bf16, CudaAttention attention) {
  const auto exact_type = [](Kind kind) { return kind == Kind::index ? DType::i32 : DType::f64; };
  std::vector<Values> exact =
      results(reference_->device(0), reference_->device(0).kernels(), operands, exact_type, call);
  for (int order = 0; order < orders(); ++order) {
    choose_order(order);
    const std::vector<Values> found = results(
        machine_->device, machine_->kernels(attention), operands, [&](Kind kind) { return type_of(kind); },
        call);
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      SCOPED_TRACE("operand " + std::to_string(i) + ", " + std::to_string(operand.rows) + " x " +
                   std::to_string(operand.columns) + ", order of threads " + std::to_string(order));
      if (operand.role == Role::in) {
        EXPECT_EQ(found[i], exact[i]);
      } else {
        const bool sums = type_of(operand.kind) != DType::bf16;
        expect_near(found[i], exact[i], operand.columns,
                    GetParam() != DType::bf16 ? kFloat
                    : sums                    ? bf16.sums
                                              : bf16.results);
      }
    }
    if (testing::Test::HasFailure()) break;
  }
  return exact;
}

}  // namespace stp::kernel_cases

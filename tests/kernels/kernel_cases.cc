#include "kernels/kernel_cases.h"

#include <cmath>
#include <span>

#include "stp/cpu/cpu_backend.h"
#include "stp/device/bfloat16.h"

namespace stp::kernel_cases {
namespace {

// Elements of a type from and to bytes.
template <typename Element>
std::vector<std::byte> as_elements(const Values& values) {
  std::vector<Element> elements;
  for (const double value : values) elements.push_back(Element(static_cast<Wide<Element>>(value)));
  const auto bytes = std::as_bytes(std::span(elements));
  return {bytes.begin(), bytes.end()};
}
std::vector<std::byte> to_bytes(const Values& values, DType type) {
  switch (type) {
    case DType::f32:
      return as_elements<float>(values);
    case DType::f64:
      return as_elements<double>(values);
    case DType::bf16:
      return as_elements<Bfloat16>(values);
    case DType::i32:
      return as_elements<int32_t>(values);
  }
  return {};
}

template <typename Element>
Values download(Device& device, Stream& stream, const Tensor& tensor) {
  std::vector<Element> elements(tensor.elements());
  device.download(stream, tensor, std::as_writable_bytes(std::span(elements)));
  return Values(elements.begin(), elements.end());
}
Values get(Device& device, Stream& stream, const Tensor& tensor) {
  switch (tensor.type) {
    case DType::f32:
      return download<float>(device, stream, tensor);
    case DType::f64:
      return download<double>(device, stream, tensor);
    case DType::bf16:
      return download<Bfloat16>(device, stream, tensor);
    case DType::i32:
      return download<int32_t>(device, stream, tensor);
  }
  return {};
}

// The operands' values after `call`.
template <typename TypeOf>
std::vector<Values> results(Device& device, Kernels& kernels, bool exact,
                            const std::vector<Operand>& operands, TypeOf type_of, const Call& call) {
  const std::unique_ptr<Stream> stream = device.make_stream("compute", StreamPriority::compute);
  Tensors tensors;
  for (const Operand& operand : operands) {
    tensors.push_back(
        device.allocate(*stream, MemoryKind::working, type_of(operand.kind), operand.rows, operand.columns));
    if (operand.role == Role::out || tensors.back().elements() == 0) continue;
    const Values values =
        operand.values.size() == 1 ? Values(tensors.back().elements(), operand.values[0]) : operand.values;
    EXPECT_EQ(std::ssize(values), tensors.back().elements());
    device.upload(*stream, tensors.back(), to_bytes(values, tensors.back().type));
  }
  call({kernels, *stream, tensors, exact});
  std::vector<Values> after;
  for (Tensor& tensor : tensors) {
    after.push_back(tensor.elements() == 0 ? Values{} : get(device, *stream, tensor));
    device.release(*stream, tensor);
  }
  device.synchronize();
  return after;
}

void expect_near(const Values& results, const Values& exact, Tolerance tolerance) {
  ASSERT_EQ(results.size(), exact.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += (results[i] - exact[i]) * (results[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance.whole * std::sqrt(norm));
  const double mean = std::sqrt(norm / static_cast<double>(exact.size()));
  for (size_t i = 0; i < exact.size(); ++i)
    ASSERT_LE(std::abs(results[i] - exact[i]), tolerance.element * (std::abs(exact[i]) + mean))
        << "element " << i << " is " << results[i] << ", not " << exact[i];
}

}  // namespace

void KernelCases::SetUp() {
  std::string reason;
  machine_ = make_machine(reason);
  if (!machine_) GTEST_SKIP() << reason;
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
  switch (type_of(kind)) {
    case DType::bf16:
      return Bfloat16(static_cast<float>(value));
    case DType::f32:
      return static_cast<float>(value);
    default:
      return value;
  }
}

Values KernelCases::random(int64_t count, Kind kind, double scale) {
  std::normal_distribution<double> normal(0, scale);
  Values values(count);
  for (double& value : values) value = rounded(normal(engine_), kind);
  return values;
}

std::vector<Values> KernelCases::expect_exact(const std::vector<Operand>& operands, const Call& call,
                                              const Rounded& bf16, Attention attention) {
  const auto exact_type = [](Kind kind) { return kind == Kind::index ? DType::i32 : DType::f64; };
  std::vector<Values> exact =
      results(reference_->device(0), reference_->device(0).kernels(), true, operands, exact_type, call);
  for (int order = 0; order < machine_->orders(); ++order) {
    machine_->choose_order(order);
    const std::vector<Values> found = results(
        machine_->device(), machine_->kernels(attention), false, operands,
        [&](Kind kind) { return type_of(kind); }, call);
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      SCOPED_TRACE("operand " + std::to_string(i) + ", " + std::to_string(operand.rows) + " x " +
                   std::to_string(operand.columns) + ", order of threads " + std::to_string(order));
      if (operand.role == Role::in) {
        EXPECT_EQ(found[i], exact[i]);
      } else {
        const bool sums = type_of(operand.kind) != DType::bf16;
        expect_near(found[i], exact[i], GetParam() != DType::bf16 ? kFloat : sums ? bf16.sums : bf16.results);
      }
    }
    if (testing::Test::HasFailure()) break;
  }
  return exact;
}

INSTANTIATE_TEST_SUITE_P(, STP_KERNEL_SUITE, testing::Values(DType::f32, DType::bf16),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace stp::kernel_cases

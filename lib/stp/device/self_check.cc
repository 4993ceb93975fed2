#include "stp/device/self_check.h"

namespace stp {
namespace {

class Bench {
 public:
  Bench(Backend& backend, DType type)
      : device_(backend.device(0)),
        type_(type),
        stream_(device_.make_stream("check", StreamPriority::compute)) {}
  ~Bench() {
    for (Tensor& tensor : made_) device_.release(*stream_, tensor);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Tensor zeros(int64_t rows, int64_t columns, DType type) {
    made_.push_back(device_.allocate(*stream_, MemoryKind::working, type, rows, columns));
    upload(made_.back(), std::vector<double>(static_cast<size_t>(rows * columns)));
    return made_.back();
  }
  Tensor zeros(int64_t rows, int64_t columns) { return zeros(rows, columns, type_); }
  /// Values repeat if there are fewer than elements.
  void upload(const Tensor& tensor, const std::vector<double>& values) {
    upload_doubles(device_, *stream_, tensor, values);
  }
  std::vector<double> values(const Tensor& tensor) {
    std::vector<double> all = download_doubles(device_, *stream_, tensor);
    device_.synchronize();
    return all;
  }
  template <typename Kernel>
  std::vector<double> run(const Kernel& kernel, const Tensor& result) {
    return run(device_.kernels(), kernel, result);
  }
  template <typename Kernel>
  std::vector<double> run(Kernels& kernels, const Kernel& kernel, const Tensor& result) {
    kernels.issue(*stream_, kernel);
    return values(result);
  }

 private:
  Device& device_;
  const DType type_;
  const std::unique_ptr<Stream> stream_;
  std::vector<Tensor> made_;
};

// −2 to 2, with a period that no size here divides.
std::vector<double> integers(int64_t count, int period) {
  std::vector<double> all(static_cast<size_t>(count));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<double>(static_cast<int>(i * 7 % static_cast<size_t>(period)) % 5 - 2);
  return all;
}

Finding found(const std::string& what, bool right, bool same) {
  const auto state = right && same ? Finding::State::works : Finding::State::missing;
  return {what, state,
          !right ? "gives wrong numbers; do not trust this device"
          : same ? "right, and the same bits twice"
                 : "gives other bits each time; runs cannot be compared"};
}

// 48: a size that all kernels take; 45: one that fits no alignment.
Finding gemm(Backend& backend, DType type, int64_t size) {
  Bench bench(backend, type);
  const std::vector<double> left = integers(size * size, 31), right = integers(size * size, 37);
  const Tensor a = bench.zeros(size, size), b = bench.zeros(size, size), c = bench.zeros(size, size);
  bench.upload(a, left);
  bench.upload(b, right);
  const kernel::Gemm product{.a = a, .b = b, .beta = 0, .c = c};
  const std::vector<double> once = bench.run(product, c), twice = bench.run(product, c);
  bool exact = true;
  for (int64_t i = 0; i < size; ++i)
    for (int64_t j = 0; j < size; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < size; ++k) sum += left[i * size + k] * right[k * size + j];
      exact = exact && once[i * size + j] == sum;  // at most 192: exact in bf16
    }
  return found((size % 2 == 0 ? "GEMM in " : "odd GEMM in ") + to_string(type), exact, once == twice);
}

Finding attention(Backend& backend, DType type) {
  const AttentionShape shape{.batch = 1, .seq = 96, .q_heads = 2, .kv_heads = 1, .head_dim = 64};
  Bench bench(backend, type);
  const Tensor qkv = bench.zeros(shape.tokens(), shape.qkv_columns()),
               out = bench.zeros(shape.tokens(), shape.q_columns()),
               log_sum_exp = bench.zeros(shape.tokens(), shape.q_heads, statistics_type(type));
  const std::vector<double> values = integers(qkv.elements(), 41);
  bench.upload(qkv, values);
  const kernel::AttentionForward forward{.shape = shape, .qkv = qkv, .out = out, .log_sum_exp = log_sum_exp};
  const std::vector<double> once = bench.run(forward, out), twice = bench.run(forward, out);
  bool right = true;
  const int64_t v = shape.q_columns() + shape.kv_columns();
  for (int64_t i = 0; i < shape.q_columns(); ++i) right = right && once[i] == values[v + i % shape.head_dim];
  return found("attention in " + to_string(type), right, once == twice);
}

}  // namespace

std::vector<double> attention_and_gradient(Backend& backend, Kernels& kernels, DType type,
                                           const AttentionShape& shape) {
  Bench bench(backend, type);
  const auto rows = [&](int64_t columns) { return bench.zeros(shape.tokens(), columns); };
  const Tensor qkv = rows(shape.qkv_columns()), qkv_gradient = rows(shape.qkv_columns()),
               out = rows(shape.q_columns()), out_gradient = rows(shape.q_columns()),
               log_sum_exp = bench.zeros(shape.tokens(), shape.q_heads, statistics_type(type));
  bench.upload(qkv, integers(qkv.elements(), 41));
  bench.upload(out_gradient, integers(out.elements(), 43));
  std::vector<double> all = bench.run(
      kernels, kernel::AttentionForward{.shape = shape, .qkv = qkv, .out = out, .log_sum_exp = log_sum_exp},
      out);
  const std::vector<double> gradient = bench.run(kernels,
                                                 kernel::AttentionBackward{.shape = shape,
                                                                           .qkv = qkv,
                                                                           .out = out,
                                                                           .log_sum_exp = log_sum_exp,
                                                                           .out_gradient = out_gradient,
                                                                           .qkv_gradient = qkv_gradient},
                                                 qkv_gradient);
  all.insert(all.end(), gradient.begin(), gradient.end());
  return all;
}

std::vector<Finding> self_check(Backend& backend, DType type) {
  Findings found;
  found.add(gemm(backend, type, 48));
  found.add(gemm(backend, type, 45));
  found.add(attention(backend, type));
  return found.all();
}

}  // namespace stp

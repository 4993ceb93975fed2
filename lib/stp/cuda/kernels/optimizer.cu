// The norm of all gradients, and AdamW.
#include <cmath>

#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/cuda/kernels/device.cuh"

namespace stp::cuda {
namespace {

constexpr int kOptimizerThreads = kFlatThreads;
constexpr unsigned kMostPartialSums = 1024;

template <typename T>
__global__ void __launch_bounds__(kOptimizerThreads)
    square_sums_kernel(int64_t count, const T* x, double* of_block) {
  double sum = 0;
  for_each_pack<kPack<T>>(count, [&](auto width, int64_t i) {
    const Values<width> v = load<width>(x + i);
#pragma unroll
    for (int k = 0; k < width; ++k) sum += static_cast<double>(v.at[k]) * static_cast<double>(v.at[k]);
  });
  sum = reduce_block(sum, Sum{}, 0.0);
  if (threadIdx.x == 0) of_block[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kOptimizerThreads)
    add_square_sums_kernel(int blocks, const double* of_block, double factor, double* total) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kOptimizerThreads) sum += of_block[i];
  sum = reduce_block(sum, Sum{}, 0.0);
  if (threadIdx.x == 0) *total += factor * sum;
}

// AdamW's options, prepared for one step.
struct Step {
  static constexpr bool is_new_each_time = true;
  float beta1, rest1, beta2, rest2;
  float unbias1, unbias2;  // 1 / (1 − beta^step)
  float rate, epsilon;
  float keep;  // of the weight, after decay
};

template <typename T>
__global__ void __launch_bounds__(kOptimizerThreads)
    adamw_kernel(int64_t count, Step step, double max_norm, const double* total, const float* gradient,
                 float* first_moment, float* second_moment, float* master, T* weight) {
  float clip = 1;
  if (total != nullptr)
    if (const double norm = sqrt(*total); norm > max_norm) clip = static_cast<float>(max_norm / norm);
  for_each_pack<kPack<T>>(count, [&](auto width, int64_t i) {
    const Values<width> g = load<width>(gradient + i);
    Values<width> first = load<width>(first_moment + i), second = load<width>(second_moment + i);
    Values<width> value = load<width>(master + i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const float clipped = g.at[k] * clip;
      first.at[k] = step.beta1 * first.at[k] + step.rest1 * clipped;
      second.at[k] = step.beta2 * second.at[k] + step.rest2 * clipped * clipped;
      value.at[k] = value.at[k] * step.keep - step.rate * (first.at[k] * step.unbias1) /
                                                  (sqrtf(second.at[k] * step.unbias2) + step.epsilon);
    }
    store(first_moment + i, first);
    store(second_moment + i, second);
    store(master + i, value);
    if (weight != nullptr) store(weight + i, value);
  });
}

}  // namespace

void CudaKernels::run(Stream& stream, const kernel::AddSumOfSquares& k) {
  with_type(k, [&]<typename T>(T) {
    const auto kernel = square_sums_kernel<T>;
    const int64_t count = k.x.elements();
    if (count == 0) return;
    auto* const of_block = reinterpret_cast<double*>(scratch(stream, kMostPartialSums * sizeof(double)));
    LaunchShape shape = flat_shape(kernel, divide_up<int64_t>(count, kPack<T>));
    shape.blocks.x = std::min(shape.blocks.x, kMostPartialSums);
    start(stream, kernel, shape, count, data<T>(k.x), of_block);
    start(stream, add_square_sums_kernel, LaunchShape{1, kOptimizerThreads}, static_cast<int>(shape.blocks.x),
          of_block, k.factor, data<double>(k.total));
  });
}

void CudaKernels::run(Stream& stream, const kernel::AdamW& k) {
  const AdamW& options = k.options;
  const auto f = [](double value) { return static_cast<float>(value); };
  const Step step{f(options.beta1),
                  f(1 - options.beta1),
                  f(options.beta2),
                  f(1 - options.beta2),
                  f(1 / (1 - std::pow(options.beta1, options.step))),
                  f(1 / (1 - std::pow(options.beta2, options.step))),
                  f(options.learning_rate),
                  f(options.epsilon),
                  f(1 - options.learning_rate * options.weight_decay)};
  with_type(k, [&]<typename T>(T) {
    const auto kernel = adamw_kernel<T>;
    const int64_t count = k.gradient.elements();
    if (count == 0) return;
    start(stream, kernel, flat_shape(kernel, divide_up<int64_t>(count, kPack<T>)), count, step, k.max_norm,
          data<double>(k.total), data<float>(k.gradient), data<float>(k.first_moment),
          data<float>(k.second_moment), data<float>(k.master), k.has_master() ? data<T>(k.weight) : nullptr);
  });
}

}  // namespace stp::cuda

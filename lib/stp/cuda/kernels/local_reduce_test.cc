// The kernels of ranks that share a GPU, as they are written, on the host: against sums in float64. The fake
// device notices who writes past the end of its memory.
#include "stp/cuda/kernels/local_reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "stp/device/bfloat16.h"
#include "support/cuda_on_host.h"

namespace stp::cuda {
namespace {

template <typename T>
constexpr double rounding() {
  return std::is_same_v<T, double> ? 0x1p-53 : std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;
}

class LocalReduceOnHost : public testing_support::CudaOnHost {
 protected:
  LocalReduceOnHost() { start({.deadline_s = kNever}); }

  template <typename T>
  Tensor tensor(const std::vector<T>& values) {
    Tensor made =
        device().allocate(stream(), MemoryKind::working, kTypeOf<T>, 1, static_cast<int64_t>(values.size()));
    device().upload(stream(), made, std::as_bytes(std::span(values)));
    return made;
  }
  template <typename T>
  std::vector<T> values(const Tensor& tensor) {
    std::vector<T> found(tensor.elements());
    device().download(stream(), tensor, std::as_writable_bytes(std::span(found)));
    return found;
  }
  void add(LocalBuffers& buffers, const Tensor& in, const Tensor& out) {
    buffers.in[buffers.members] = address(in);
    buffers.out[buffers.members++] = address(out);
    held_.insert(held_.end(), {in, out});
  }
  /// The outputs, of so many elements each.
  template <typename T>
  std::vector<Tensor> add(LocalBuffers& buffers, const std::vector<std::vector<T>>& in, size_t elements) {
    std::vector<Tensor> out;
    for (const auto& each : in) {
      out.push_back(tensor(std::vector<T>(elements)));
      add(buffers, tensor(each), out.back());
    }
    return out;
  }
  /// Takes the memory of all that was added back.
  void release() {
    for (Tensor& each : held_)
      if (each.memory->held) device().release(stream(), each);
    held_.clear();
  }

 private:
  std::vector<Tensor> held_;
};

template <typename T>
std::vector<std::vector<T>> random_values(int members, size_t elements, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<T>> all(members, std::vector<T>(elements));
  for (auto& each : all)
    for (T& value : each) value = T(normal(random));
  return all;
}

template <typename T>
class LocalReduce : public LocalReduceOnHost {};
using Types = testing::Types<float, double, Bfloat16>;
TYPED_TEST_SUITE(LocalReduce, Types);

// Divisible into packs and not, less than a warp and more than all blocks together have threads.
constexpr size_t kSizes[] = {1, 8, 13, 2048, 16391};
constexpr int kMembers[] = {1, 2, 3, 8};

// What rounding may do to a sum: each addition, which is of float or double, and the result once.
template <typename T>
double tolerance(const std::vector<double>& terms, double sum) {
  double size = 0;
  for (const double term : terms) size += std::abs(term);
  const double each = std::is_same_v<T, double> ? rounding<double>() : rounding<float>();
  return 1.01 * std::abs(sum) * rounding<T>() + 2 * size * each * static_cast<double>(terms.size());
}

template <typename T>
void expect_reduced(Reduce reduce, const std::vector<std::vector<T>>& in, size_t at, T found) {
  std::vector<double> terms;
  for (const auto& each : in) terms.push_back(static_cast<double>(each[at]));
  if (reduce == Reduce::maximum) {
    ASSERT_EQ(static_cast<double>(found), *std::max_element(terms.begin(), terms.end())) << at;
    return;
  }
  double sum = 0;
  for (const double term : terms) sum += term;
  ASSERT_NEAR(static_cast<double>(found), sum, tolerance<T>(terms, sum)) << at;
}

// Calls `check` with every number of members and every size.
template <typename Check>
void for_each_group(Check check) {
  for (const int members : kMembers)
    for (const size_t elements : kSizes) {
      SCOPED_TRACE(std::to_string(members) + " members, " + std::to_string(elements));
      check(members, elements);
    }
}

TYPED_TEST(LocalReduce, AllReduceGivesAllTheSameBits) {
  for_each_group([&](int members, size_t elements) {
    for (const Reduce reduce : {Reduce::sum, Reduce::maximum}) {
      const auto in = random_values<TypeParam>(members, elements, 1);
      LocalBuffers buffers;
      std::vector<Tensor> here;
      for (const auto& each : in) {
        here.push_back(this->tensor(each));
        this->add(buffers, here.back(), here.back());
      }
      local_all_reduce(this->stream(), reduce, kTypeOf<TypeParam>, buffers, static_cast<int64_t>(elements));
      const auto first = this->template values<TypeParam>(here[0]);
      for (size_t i = 0; i < elements; ++i) expect_reduced(reduce, in, i, first[i]);
      for (const Tensor& each : here) EXPECT_EQ(this->template values<TypeParam>(each), first);
      this->release();
    }
  });
}

TYPED_TEST(LocalReduce, ReduceScatterGivesEachItsPiece) {
  for_each_group([&](int members, size_t elements) {
    for (const Reduce reduce : {Reduce::sum, Reduce::maximum}) {
      const auto in = random_values<TypeParam>(members, elements * members, 2);
      LocalBuffers buffers;
      const auto out = this->add(buffers, in, elements);
      local_reduce_scatter(this->stream(), reduce, kTypeOf<TypeParam>, buffers,
                           static_cast<int64_t>(elements));
      for (int member = 0; member < members; ++member) {
        const auto piece = this->template values<TypeParam>(out[member]);
        for (size_t i = 0; i < elements; ++i) expect_reduced(reduce, in, member * elements + i, piece[i]);
      }
      this->release();
    }
  });
}

TYPED_TEST(LocalReduce, AllGatherGivesAllOfThemToAll) {
  for_each_group([&](int members, size_t elements) {
    const auto in = random_values<TypeParam>(members, elements, 3);
    LocalBuffers buffers;
    const auto out = this->add(buffers, in, elements * members);
    std::vector<TypeParam> all;
    for (const auto& each : in) all.insert(all.end(), each.begin(), each.end());
    local_all_gather(this->stream(), buffers, elements * sizeof(TypeParam));
    for (const Tensor& each : out) EXPECT_EQ(this->template values<TypeParam>(each), all);
    this->release();
  });
}

// Sums in the members' order, and of bf16 rounded once: support/local_groups.h.

TEST_F(LocalReduceOnHost, NothingIsLaunchedForNothing) {
  LocalBuffers buffers;
  buffers.members = 2;
  local_all_reduce(stream(), Reduce::sum, DType::f32, buffers, 0);
  local_reduce_scatter(stream(), Reduce::sum, DType::f32, buffers, 0);
  local_all_gather(stream(), buffers, 0);
  EXPECT_EQ(fake_cuda::calls("cudaLaunchKernel"), 0U);
}

}  // namespace
}  // namespace stp::cuda

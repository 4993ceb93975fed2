// The kernels of ranks that share a GPU, as they are written, on the host: against sums in float64.
#include "stp/cuda/local_reduce.cu"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "support/guarded_buffer.h"

namespace stp::cuda {
namespace {

using launch::PartyBuffers;

template <typename T>
constexpr double rounding() {
  return std::is_same_v<T, double> ? 0x1p-53 : std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;
}
double value_of(double value) { return value; }
double value_of(float value) { return static_cast<double>(value); }
double value_of(__nv_bfloat16 value) { return static_cast<double>(__bfloat162float(value)); }
template <typename T>
T element(double value) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
using Buffer = testing_support::GuardedBuffer<T>;

template <typename T>
std::vector<Buffer<T>> random_buffers(int parties, size_t elements, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Buffer<T>> all(parties, Buffer<T>(elements));
  for (auto& buffer : all)
    for (size_t i = 0; i < elements; ++i) buffer.data()[i] = element<T>(normal(random));
  return all;
}

template <typename T>
class LocalReduce : public testing::Test {};
using Types = testing::Types<float, double, __nv_bfloat16>;
TYPED_TEST_SUITE(LocalReduce, Types);

// Divisible into packs and not, less than a warp and more than all blocks together have threads.
constexpr size_t kSizes[] = {1, 8, 13, 2048, 16391};
constexpr int kParties[] = {1, 2, 3, 8};

// What rounding may do to a sum: each addition, which is of float or double, and the result once.
template <typename T>
double tolerance(const std::vector<double>& terms, double sum) {
  double size = 0;
  for (const double term : terms) size += std::abs(term);
  const double each = std::is_same_v<T, double> ? rounding<double>() : rounding<float>();
  return 1.01 * std::abs(sum) * rounding<T>() + 2 * size * each * static_cast<double>(terms.size());
}

template <typename T>
void expect_reduced(Reduce reduce, const std::vector<Buffer<T>>& in, size_t at, T found) {
  std::vector<double> terms;
  for (const auto& buffer : in) terms.push_back(value_of(buffer.data()[at]));
  if (reduce == Reduce::maximum) {
    ASSERT_EQ(value_of(found), *std::max_element(terms.begin(), terms.end())) << at;
    return;
  }
  double sum = 0;
  for (const double term : terms) sum += term;
  ASSERT_NEAR(value_of(found), sum, tolerance<T>(terms, sum)) << at;
}

TYPED_TEST(LocalReduce, AllReduceGivesAllTheSameBits) {
  for (const Reduce reduce : {Reduce::sum, Reduce::maximum})
    for (const int parties : kParties)
      for (const size_t elements : kSizes) {
        SCOPED_TRACE(std::to_string(parties) + " parties, " + std::to_string(elements));
        const auto in = random_buffers<TypeParam>(parties, elements, 1);
        auto here = in;
        PartyBuffers buffers;
        for (auto& buffer : here) {
          buffers.in[buffers.parties] = buffer.data();
          buffers.out[buffers.parties++] = buffer.data();
        }
        launch::all_reduce<TypeParam>(nullptr, reduce, buffers, static_cast<int64_t>(elements));
        for (size_t i = 0; i < elements; ++i) expect_reduced(reduce, in, i, here[0].data()[i]);
        for (const auto& buffer : here) {
          EXPECT_EQ(std::memcmp(buffer.data(), here[0].data(), elements * sizeof(TypeParam)), 0);
          EXPECT_TRUE(buffer.margin_is_untouched());
        }
      }
}

TYPED_TEST(LocalReduce, ReduceScatterGivesEachItsPiece) {
  for (const Reduce reduce : {Reduce::sum, Reduce::maximum})
    for (const int parties : kParties)
      for (const size_t elements : kSizes) {
        SCOPED_TRACE(std::to_string(parties) + " parties, " + std::to_string(elements));
        auto in = random_buffers<TypeParam>(parties, elements * parties, 2);
        std::vector<Buffer<TypeParam>> out(parties, Buffer<TypeParam>(elements));
        PartyBuffers buffers;
        for (int party = 0; party < parties; ++party) {
          buffers.in[party] = in[party].data();
          buffers.out[party] = out[party].data();
        }
        buffers.parties = parties;
        launch::reduce_scatter<TypeParam>(nullptr, reduce, buffers, static_cast<int64_t>(elements));
        for (int party = 0; party < parties; ++party) {
          for (size_t i = 0; i < elements; ++i)
            expect_reduced(reduce, in, party * elements + i, out[party].data()[i]);
          EXPECT_TRUE(out[party].margin_is_untouched());
        }
      }
}

TYPED_TEST(LocalReduce, AllGatherGivesAllOfThemToAll) {
  for (const int parties : kParties)
    for (const size_t elements : kSizes) {
      SCOPED_TRACE(std::to_string(parties) + " parties, " + std::to_string(elements));
      auto in = random_buffers<TypeParam>(parties, elements, 3);
      std::vector<Buffer<TypeParam>> out(parties, Buffer<TypeParam>(elements * parties));
      PartyBuffers buffers;
      for (int party = 0; party < parties; ++party) {
        buffers.in[party] = in[party].data();
        buffers.out[party] = out[party].data();
      }
      buffers.parties = parties;
      const size_t bytes = elements * sizeof(TypeParam);
      launch::all_gather(nullptr, buffers, bytes);
      for (const auto& all : out) {
        for (int party = 0; party < parties; ++party)
          EXPECT_EQ(std::memcmp(all.data() + party * elements, in[party].data(), bytes), 0);
        EXPECT_TRUE(all.margin_is_untouched());
      }
    }
}

// 1e16 − 1e16 + 1 is 1 in the parties' order, and 0 in any other.
TEST(LocalReduceOrder, SumsAreInThePartiesOrder) {
  std::vector<double> values{1e16, -1e16, 1}, out(3);
  PartyBuffers buffers;
  for (double& value : values) {
    buffers.in[buffers.parties] = &value;
    buffers.out[buffers.parties] = &out[buffers.parties];
    ++buffers.parties;
  }
  launch::all_reduce<double>(nullptr, Reduce::sum, buffers, 1);
  EXPECT_EQ(out, std::vector<double>(3, 1));
}

// In bf16 itself, 256 + 1 is 256 again.
TEST(LocalReduceOrder, SumsOfBf16AreRoundedOnce) {
  std::vector<Buffer<__nv_bfloat16>> here(3, Buffer<__nv_bfloat16>(8));
  PartyBuffers buffers;
  for (auto& buffer : here) {
    for (size_t i = 0; i < 8; ++i) buffer.data()[i] = element<__nv_bfloat16>(buffers.parties == 0 ? 256 : 1);
    buffers.in[buffers.parties] = buffer.data();
    buffers.out[buffers.parties++] = buffer.data();
  }
  launch::all_reduce<__nv_bfloat16>(nullptr, Reduce::sum, buffers, 8);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(value_of(here[2].data()[i]), 258);
}

TEST(LocalReduceOrder, NothingIsLaunchedForNothing) {
  PartyBuffers buffers;
  buffers.parties = 2;
  launch::all_reduce<float>(nullptr, Reduce::sum, buffers, 0);
  launch::reduce_scatter<float>(nullptr, Reduce::sum, buffers, 0);
  launch::all_gather(nullptr, buffers, 0);
}

}  // namespace
}  // namespace stp::cuda

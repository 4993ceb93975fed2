// The paced kernel as it is written, on the host, with a clock that moves when it is read.
#include "stp/cuda/paced.cu"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "support/guarded_buffer.h"
#include "support/simt_clock.h"

namespace stp::cuda {
namespace {

using launch::kPacedPiece;
using launch::PacedMove;

class Bytes : public testing_support::GuardedBuffer<unsigned char> {
 public:
  explicit Bytes(int64_t size) : GuardedBuffer(static_cast<size_t>(size)) {}
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(GuardedBuffer::size()); }
  unsigned char operator[](int64_t at) { return data()[at]; }
  void count_up() {
    for (int64_t i = 0; i < size(); ++i) data()[i] = static_cast<unsigned char>((i * 7 + i / 251) % 253);
  }
};

class Paced : public testing::Test {
 protected:
  ~Paced() override {
    simt::order = simt::Order::forward;
    simt::clock_read = {};
  }

  void run(PacedMove move) {
    link = std::make_unique<Bytes>(static_cast<int64_t>(launch::paced_link_bytes(move.pace)));
    move.link = link->data();
    launch::paced(nullptr, move);
    EXPECT_TRUE(link->margin_is_untouched());
  }

  std::unique_ptr<Bytes> link;
};

constexpr CallTime kQuick{1e-7, 3e-7};

// Of one piece and of several, with a remainder and without, fewer bytes than CTAs, and odd ones.
const int64_t kSizes[] = {2, 16, 48, 1000, kPacedPiece, 2 * kPacedPiece + 30, 5 * kPacedPiece + 1234};

TEST_F(Paced, AnAllReduceLeavesItsTensorAsItWas) {
  for (const auto order : {simt::Order::forward, simt::Order::backward, simt::Order::shuffled}) {
    simt::order = order;
    for (const int64_t size : kSizes)
      for (const int ranks : {2, 3, 8}) {
        Bytes tensor(size), before(size);
        tensor.count_up();
        before.count_up();
        const Pace pace = make_pace(size, kQuick, 3, kPacedPiece);
        run({.pace = pace,
             .kind = CallKind::all_reduce,
             .size = ranks,
             .index = 1,
             .in = tensor.data(),
             .out = tensor.data()});
        EXPECT_EQ(std::memcmp(tensor.data(), before.data(), size), 0) << size << " of " << ranks;
        EXPECT_TRUE(tensor.margin_is_untouched());
        // It went through the link, and n − 2 in n of it through the link's other half.
        for (int cta = 0; cta < pace.ctas; ++cta) {
          const int64_t last = pace.pieces(cta) - 1, begin = pace.piece_begin(cta, last);
          const int64_t bytes = pace.piece_end(cta, last) - begin,
                        again = bytes * (ranks - 2) / ranks / 16 * 16;
          const unsigned char* at = link->data() + cta * 2 * kPacedPiece;
          EXPECT_EQ(std::memcmp(at, before.data() + begin, bytes), 0);
          EXPECT_EQ(std::memcmp(at + kPacedPiece, before.data() + begin, again), 0);
        }
      }
  }
}

TEST_F(Paced, AnAllGatherRepeatsTheInput) {
  for (const int64_t size : kSizes)
    for (const int ranks : {2, 3, 5}) {
      Bytes in(size), out(size * ranks);
      in.count_up();
      run({.pace = make_pace(out.size(), kQuick, 4, kPacedPiece),
           .kind = CallKind::all_gather,
           .size = ranks,
           .in = in.data(),
           .out = out.data()});
      for (int64_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], in[i % size]) << i << " of " << size;
      EXPECT_TRUE(out.margin_is_untouched());
    }
}

TEST_F(Paced, AReduceScatterLeavesItsOwnPiece) {
  for (const int64_t size : kSizes)
    for (const int ranks : {2, 3, 5})
      for (int index = 0; index < ranks; ++index) {
        Bytes in(size * ranks), out(size);
        in.count_up();
        run({.pace = make_pace(in.size(), kQuick, 4, kPacedPiece),
             .kind = CallKind::reduce_scatter,
             .size = ranks,
             .index = index,
             .in = in.data(),
             .out = out.data()});
        EXPECT_EQ(std::memcmp(out.data(), in.data() + index * size, size), 0) << size << " of " << index;
        EXPECT_TRUE(out.margin_is_untouched());
      }
}

TEST_F(Paced, ASendGoesIntoTheLink) {
  for (const int64_t size : kSizes) {
    Bytes in(size), before(size);
    in.count_up();
    before.count_up();
    const Pace pace = make_pace(size, kQuick, 2, kPacedPiece);
    run({.pace = pace, .kind = CallKind::send, .size = 2, .in = in.data()});
    EXPECT_EQ(std::memcmp(in.data(), before.data(), size), 0);
    for (int cta = 0; cta < pace.ctas; ++cta) {
      const int64_t last = pace.pieces(cta) - 1, begin = pace.piece_begin(cta, last);
      EXPECT_EQ(std::memcmp(link->data() + cta * 2 * kPacedPiece, before.data() + begin,
                            pace.piece_end(cta, last) - begin),
                0);
    }
  }
}

template <typename T>
double value_of(T value) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return static_cast<double>(__bfloat162float(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
void expect_small_numbers(Bytes& out) {
  const auto* numbers = reinterpret_cast<const T*>(out.data());
  const auto count = out.size() / static_cast<int64_t>(sizeof(T));
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_LE(std::abs(value_of(numbers[i])), 0.008) << i;
    squares += value_of(numbers[i]) * value_of(numbers[i]);
  }
  EXPECT_GT(std::sqrt(squares / static_cast<double>(count)), 0.003);
}

TEST_F(Paced, WhatIsReceivedIsSmallAndFinite) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16})
    for (const int64_t elements : {1, 100, 100'000}) {
      Bytes out(elements * static_cast<int64_t>(bytes_of(type)));
      run({.pace = make_pace(out.size(), kQuick, 2, kPacedPiece),
           .kind = CallKind::receive,
           .size = 2,
           .type = type,
           .out = out.data()});
      if (type == DType::f32) expect_small_numbers<float>(out);
      if (type == DType::f64) expect_small_numbers<double>(out);
      if (type == DType::bf16) expect_small_numbers<__nv_bfloat16>(out);
      EXPECT_TRUE(out.margin_is_untouched());
    }
}

// At every reading of the clock: how far each block has come, against when it may have.
TEST_F(Paced, NoPieceIsBegunBeforeTheOneBeforeItWasDueAndNoBlockEndsEarly) {
  for (const int64_t size : {int64_t{1000}, 3 * kPacedPiece, 7 * kPacedPiece + 4321}) {
    for (const int ctas : {1, 2, 3}) {
      const Pace pace = make_pace(size, {2e-6, 9e-6}, ctas, kPacedPiece);
      Bytes out(size);
      uint64_t began = 0;
      int block = -1, looks = 0;
      std::vector<uint64_t> took(pace.ctas, 0);
      simt::clock_read = [&](uint64_t now) {
        if (static_cast<int>(blockIdx.x) != block) {  // its first reading
          block = static_cast<int>(blockIdx.x);
          began = now;
        }
        took[block] = now - began;
        ++looks;
        for (int64_t i = 0; i < pace.pieces(block); ++i) {
          const bool begun = out[pace.piece_begin(block, i)] != 0xab;
          const double allowed = i == 0 ? 0 : pace.due_ns(block, i - 1);
          ASSERT_FALSE(begun && static_cast<double>(now - began) < allowed)
              << "piece " << i << " of block " << block << " at " << now - began;
        }
      };
      run({.pace = pace, .kind = CallKind::receive, .size = 2, .type = DType::f32, .out = out.data()});
      for (const uint64_t each : took) {
        EXPECT_GE(each, 11'000U);
        EXPECT_LT(each, 11'000U + 2 * simt::clock_step_ns * static_cast<uint64_t>(pace.pieces(0) + 2));
      }
      EXPECT_GE(looks, 100 * pace.ctas);  // 100 ns each
    }
  }
}

TEST_F(Paced, TheLatestBlockSaysHowLateItWas) {
  const Pace pace = make_pace(6 * kPacedPiece, {2e-6, 9e-6}, 3, kPacedPiece);
  Bytes in(pace.bytes);
  unsigned long long late = 0;
  const PacedMove move{.pace = pace, .kind = CallKind::send, .size = 2, .in = in.data(), .late_ns = &late};
  run(move);
  EXPECT_EQ(late, 0U);
  // Copies that take longer than they should, in all blocks and in the second one the most; where only the
  // first piece does, the rest makes up for it.
  int readings = 0;
  const auto delay = [&](int reading, uint64_t of_second, uint64_t of_others) {
    late = readings = 0;
    simt::clock_read = [&, reading, of_second, of_others, block = -1](uint64_t) mutable {
      if (static_cast<int>(blockIdx.x) != block) readings = 0;
      block = static_cast<int>(blockIdx.x);
      if (readings++ == reading) simt::clock_ns += block == 1 ? of_second : of_others;
    };
    run(move);
  };
  delay(1, 20'000, 15'000);
  EXPECT_GE(late, 9'000U);
  EXPECT_LE(late, 9'000U + 3 * simt::clock_step_ns);
  delay(1, 10'000, 0);
  EXPECT_EQ(late, 0U);
  late = 5;
  simt::clock_read = {};
  run(move);
  EXPECT_EQ(late, 5U);
}

TEST_F(Paced, ACallWithoutBytesTakesItsLatency) {
  uint64_t first = 0, last = 0;
  simt::clock_read = [&](uint64_t now) { first == 0 ? first = last = now : last = now; };
  Bytes nothing(0);
  run({.pace = make_pace(0, {5e-6, 0}, 16, kPacedPiece),
       .kind = CallKind::all_reduce,
       .size = 4,
       .in = nothing.data(),
       .out = nothing.data()});
  EXPECT_GE(last - first, 5000U);
  EXPECT_TRUE(nothing.margin_is_untouched());
}

}  // namespace
}  // namespace stp::cuda

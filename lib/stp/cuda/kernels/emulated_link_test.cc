// The kernel of emulated links as it is written, on the host, with a clock that moves when it is read. The
// fake device notices who writes past the end of its memory.
#include "stp/cuda/kernels/emulated_link.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "stp/device/bfloat16.h"
#include "stp/emulation/emulated_group.h"
#include "support/cuda_on_host.h"
#include "support/simt.h"
#include "support/simt_clock.h"

namespace stp::cuda {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes counted(int64_t size) {
  Bytes made(size);
  for (int64_t i = 0; i < size; ++i) made[i] = static_cast<unsigned char>((i * 7 + i / 251) % 253);
  return made;
}

class EmulatedLink : public testing_support::CudaOnHost {
 protected:
  ~EmulatedLink() override {
    simt::order = simt::Order::forward;
    simt::clock_read = {};
  }

  // Even sizes.
  Tensor tensor(const Bytes& content) {
    Tensor made = bytes(static_cast<int64_t>(content.size()));
    device().upload(stream(), made, std::as_bytes(std::span(content)));
    return made;
  }
  template <typename T = unsigned char>
  std::vector<T> read(const Tensor& tensor) {
    std::vector<T> found(tensor.bytes() / sizeof(T));
    device().download(stream(), tensor, std::as_writable_bytes(std::span(found)));
    return found;
  }
  void give_back(std::initializer_list<Tensor> tensors) {
    for (Tensor each : tensors) device().release(stream(), each);
    device().synchronize();
  }

  /// Runs it, and leaves its link buffers in `link`.
  void run(EmulatedMove move) {
    Tensor buffers = bytes(static_cast<int64_t>(link_buffer_bytes(move.link)));
    move.buffers = address(buffers);
    emulate_link(stream(), move);
    link = read(buffers);
    give_back({buffers});
  }
  /// What a call leaves of `sent` in an output of `size` bytes.
  Bytes output_of(CallKind kind, int ranks, int index, const LinkEmulation& emulated, const Bytes& sent,
                  int64_t size) {
    const Tensor in = tensor(sent), out = bytes(size);
    run({.link = emulated,
         .kind = kind,
         .size = ranks,
         .index = index,
         .in = address(in),
         .out = address(out)});
    EXPECT_EQ(read(in), sent);
    const Bytes found = read(out);
    give_back({in, out});
    return found;
  }

  Bytes link;
};

constexpr CallTime kQuick{1e-7, 3e-7};

// Of one piece and of several, with a remainder and without, fewer bytes than CTAs, and odd ones.
const int64_t kByteCounts[] = {2, 16, 48, 1000, kLinkPiece, 2 * kLinkPiece + 30, 5 * kLinkPiece + 1234};

TEST_F(EmulatedLink, AnAllReduceLeavesItsTensorAsItWas) {
  for (const auto order : {simt::Order::forward, simt::Order::backward, simt::Order::shuffled}) {
    simt::order = order;
    for (const int64_t size : kByteCounts)
      for (const int ranks : {2, 3, 8}) {
        const Bytes before = counted(size);
        const Tensor reduced = tensor(before);
        const LinkEmulation emulated = emulate_links(size, kQuick, 3, kLinkPiece);
        run({.link = emulated,
             .kind = CallKind::all_reduce,
             .size = ranks,
             .index = 1,
             .in = address(reduced),
             .out = address(reduced)});
        EXPECT_EQ(read(reduced), before) << size << " of " << ranks;
        // It went through the link, and n − 2 in n of it through the link's other half.
        for (int cta = 0; cta < emulated.ctas; ++cta) {
          const int64_t last = emulated.pieces(cta) - 1, begin = emulated.piece_begin(cta, last);
          const int64_t moved = emulated.piece_end(cta, last) - begin,
                        again = moved * (ranks - 2) / ranks / 16 * 16;
          const unsigned char* at = link.data() + cta * 2 * kLinkPiece;
          EXPECT_EQ(std::memcmp(at, before.data() + begin, moved), 0);
          EXPECT_EQ(std::memcmp(at + kLinkPiece, before.data() + begin, again), 0);
        }
        give_back({reduced});
      }
  }
}

TEST_F(EmulatedLink, AnAllGatherRepeatsTheInputAndAReduceScatterLeavesItsOwnPiece) {
  for (const int64_t size : kByteCounts)
    for (const int ranks : {2, 3, 5}) {
      const LinkEmulation emulated = emulate_links(size * ranks, kQuick, 4, kLinkPiece);
      const Bytes content = counted(size), whole = counted(size * ranks);
      Bytes repeated;
      for (int i = 0; i < ranks; ++i) repeated.insert(repeated.end(), content.begin(), content.end());
      EXPECT_EQ(output_of(CallKind::all_gather, ranks, 0, emulated, content, size * ranks), repeated) << size;
      for (int index = 0; index < ranks; ++index) {
        const auto own = whole.begin() + index * size;
        EXPECT_EQ(output_of(CallKind::reduce_scatter, ranks, index, emulated, whole, size),
                  Bytes(own, own + size))
            << size << " of " << index;
      }
    }
}

TEST_F(EmulatedLink, ASendGoesIntoTheLink) {
  for (const int64_t size : kByteCounts) {
    const Bytes before = counted(size);
    const Tensor in = tensor(before);
    const LinkEmulation emulated = emulate_links(size, kQuick, 2, kLinkPiece);
    run({.link = emulated, .kind = CallKind::transfer, .size = 2, .in = address(in)});
    EXPECT_EQ(read(in), before);
    for (int cta = 0; cta < emulated.ctas; ++cta) {
      const int64_t last = emulated.pieces(cta) - 1, begin = emulated.piece_begin(cta, last);
      EXPECT_EQ(std::memcmp(link.data() + cta * 2 * kLinkPiece, before.data() + begin,
                            emulated.piece_end(cta, last) - begin),
                0);
    }
    give_back({in});
  }
}

TEST_F(EmulatedLink, ARingReturnsWhatItSends) {
  for (const int64_t size : kByteCounts) {
    const LinkEmulation emulated = emulate_links(size, kQuick, 2, kLinkPiece);
    EXPECT_EQ(output_of(CallKind::transfer, 3, 0, emulated, counted(size), size), counted(size));
  }
}

template <typename T>
void expect_small_numbers(const std::vector<T>& numbers) {
  double squares = 0;
  for (const T number : numbers) {
    const auto value = static_cast<double>(number);
    ASSERT_LE(std::abs(value), 0.008);
    squares += value * value;
  }
  EXPECT_GT(std::sqrt(squares / static_cast<double>(numbers.size())), 0.003);
}

TEST_F(EmulatedLink, WhatIsReceivedIsSmallAndFinite) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16})
    for (const int64_t elements : {1, 100, 100'000}) {
      const int64_t size = elements * static_cast<int64_t>(bytes_of(type));
      const Tensor out = bytes(size);
      run({.link = emulate_links(size, kQuick, 2, kLinkPiece),
           .kind = CallKind::transfer,
           .size = 2,
           .type = type,
           .out = address(out)});
      if (type == DType::f32) expect_small_numbers(read<float>(out));
      if (type == DType::f64) expect_small_numbers(read<double>(out));
      if (type == DType::bf16) expect_small_numbers(read<Bfloat16>(out));
      give_back({out});
    }
}

// At every reading of the clock: how far each block has come, against when it may have.
TEST_F(EmulatedLink, NoPieceIsBegunBeforeTheOneBeforeItWasDueAndNoBlockEndsEarly) {
  for (const int64_t size : {int64_t{1000}, 3 * kLinkPiece, 7 * kLinkPiece + 4320}) {
    for (const int ctas : {1, 2, 3}) {
      const LinkEmulation emulated = emulate_links(size, {2e-6, 9e-6}, ctas, kLinkPiece);
      const Tensor out = bytes(size);
      set(out, 0xab);
      device().synchronize();
      uint64_t began = 0;
      int block = -1, looks = 0;
      std::vector<uint64_t> took(emulated.ctas, 0);
      simt::clock_read = [&](uint64_t now) {
        if (static_cast<int>(blockIdx.x) != block) {  // its first reading
          block = static_cast<int>(blockIdx.x);
          began = now;
        }
        took[block] = now - began;
        ++looks;
        for (int64_t i = 0; i < emulated.pieces(block); ++i) {
          const bool begun = address(out)[emulated.piece_begin(block, i)] != std::byte{0xab};
          const double allowed = i == 0 ? 0 : emulated.due_ns(block, i - 1);
          ASSERT_FALSE(begun && static_cast<double>(now - began) < allowed)
              << "piece " << i << " of block " << block << " at " << now - began;
        }
      };
      run({.link = emulated, .kind = CallKind::transfer, .size = 2, .type = DType::f32, .out = address(out)});
      simt::clock_read = {};
      for (const uint64_t each : took) {
        EXPECT_GE(each, 11'000U);
        EXPECT_LT(each, 11'000U + 2 * simt::clock_step_ns * static_cast<uint64_t>(emulated.pieces(0) + 2));
      }
      EXPECT_GE(looks, 100 * emulated.ctas);  // 100 ns each
    }
  }
}

// The device's clock goes on by 10 µs with each step; the kernel waits on a clock of its own.
TEST_F(EmulatedLink, ACallThatWaitsForAMultiprocessorIsLate) {
  constexpr int kOthers = 100;
  constexpr double kStep = 1e-5, kLink = 20 * kStep;
  const auto replay = make_replay_backend({.world_size = 2, .deadline_s = kNever},
                                          {.rank = 0, .times = [](CallKind, double, const std::vector<int>&) {
                                             return CallTime{0, kLink};
                                           }});
  Device& rank = replay->device(0);
  const auto compute = rank.make_stream("compute", StreamPriority::compute);
  const auto send = rank.make_stream("send to rank 1", StreamPriority::communication);
  const auto group = replay->group("p2p", {0, 1}, GroupUse::transfers);
  Tensor tensor = rank.allocate(*send, MemoryKind::working, DType::f32, 1, 1024);
  const auto late_s = [&](bool occupied) {
    int done = 0;
    const auto work = [&] {
      for (int i = 0; i < kOthers; ++i)
        cuda_stream(*compute).give([&](cudaStream_t on) { fake_cuda::launch(on, [&] { ++done; }); });
    };
    if (occupied) {
      work();
      fake_cuda::occupy([&] { return done == kOthers; });
    } else {  // long before the call, which is not late for it
      work();
      rank.synchronize();
    }
    const std::vector<Part> parts{{send.get(), tensor, {}}};
    group->transfer(parts);
    rank.synchronize();
    fake_cuda::occupy({});
    const EmulatedUse use = dynamic_cast<EmulatedGroup&>(*group).take_use();
    EXPECT_EQ(use.calls, 1);
    EXPECT_EQ(use.late_s, use.latest_s);
    return use.late_s;
  };
  EXPECT_EQ(late_s(false), 0);
  EXPECT_GT(late_s(true), kOthers / 2 * kStep - kLink);
  EXPECT_EQ(late_s(false), 0);
  rank.release(*send, tensor);
  rank.synchronize();
}

TEST_F(EmulatedLink, ACallWithoutBytesTakesItsLatency) {
  uint64_t first = 0, last = 0;
  simt::clock_read = [&](uint64_t now) { first == 0 ? first = last = now : last = now; };
  const Tensor nothing = bytes(0);
  run({.link = emulate_links(0, {5e-6, 0}, 16, kLinkPiece),
       .kind = CallKind::all_reduce,
       .size = 4,
       .in = address(nothing),
       .out = address(nothing)});
  EXPECT_GE(last - first, 5000U);
}

}  // namespace
}  // namespace stp::cuda

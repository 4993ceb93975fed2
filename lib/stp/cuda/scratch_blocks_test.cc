#include "stp/cuda/scratch_blocks.h"

#include <gtest/gtest.h>

#include <deque>
#include <stdexcept>

namespace stp::cuda {
namespace {

class Scratch : public testing::Test {
 protected:
  static cudaStream_t stream(int number) { return reinterpret_cast<cudaStream_t>(intptr_t{8} * number); }

  std::deque<std::byte> memory_;  // one for each block; its address stands for the block's
  std::vector<size_t> sizes_;
  ScratchBlocks blocks_{[this](cudaStream_t, size_t bytes) -> void* {
                          sizes_.push_back(bytes);
                          return &memory_.emplace_back();
                        },
                        false};
};

TEST_F(Scratch, WhatIsTakenAtOnceIsApart) {
  void* const first = blocks_.take(stream(1), 100);
  void* const second = blocks_.take(stream(1), 100);
  void* const elsewhere = blocks_.take(stream(2), 100);
  EXPECT_NE(first, second);
  EXPECT_NE(first, elsewhere);
  EXPECT_NE(second, elsewhere);
}

TEST_F(Scratch, BlocksAreUsedAgainByTheirStreamTheSmallestThatDoes) {
  void* const small = blocks_.take(stream(1), 100);
  blocks_.give_back(stream(1), small, 100);
  void* const large = blocks_.take(stream(1), 1000);
  EXPECT_NE(large, small);
  blocks_.give_back(stream(1), large, 1000);
  EXPECT_EQ(blocks_.take(stream(1), 90), small);
  EXPECT_EQ(blocks_.take(stream(1), 90), large);
  EXPECT_EQ(sizes_, (std::vector<size_t>{128, 1024}));
}

TEST_F(Scratch, OnlyWhatWasTakenIsGivenBack) {
  void* const block = blocks_.take(stream(1), 8);
  EXPECT_THROW(blocks_.give_back(stream(2), block, 8), std::logic_error);
  blocks_.give_back(stream(1), block, 8);
  EXPECT_THROW(blocks_.give_back(stream(1), block, 8), std::logic_error);
}

}  // namespace
}  // namespace stp::cuda

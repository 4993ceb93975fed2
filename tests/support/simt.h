// The kernels of lib/stp/cuda on the host: what target.cuh gives them on a device. The threads of a
// block are fibers, which change at barriers alone; one that is done lends its stack to the next. A warp runs
// ahead of the others as far as the block's barriers let it, the first one first or the last one, or all of
// them to some point by chance. So a kernel is run as it is written, and a result that changes with the order
// shows a missing barrier. Stricter than a device:
//   - what a block does not see yet is NaN: dynamic shared memory at first, and the target of an asynchronous
//     copy until its thread waits for it;
//   - a barrier that not all threads of the block (or warp) reach is an error;
//   - accesses of 16 bytes must be aligned.
// One block runs after the other, when the stream of the fake runtime comes to the launch (fake_cuda.h).
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <ucontext.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

#include "stp/cuda/kernels/launch.h"
#include "support/fake_cuda.h"

#undef __shared__
#define __shared__ static  // one block at a time
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace stp::simt {

/// In which order the warps of a block run, and the lanes of a warp between two barriers.
enum class Order { forward, backward, shuffled };
inline Order order = Order::forward;

constexpr int kWarp = 32;
constexpr size_t kStack = size_t{128} * 1024;
constexpr size_t kExchange = 32;  // bytes that a lane can show its warp

/// A stack of its own, and where what runs there goes on. Changing stacks asks nothing of the system.
class Fiber {
 public:
  /// Goes to `to`, where `function` begins if it has none yet, which never returns. Returns when another
  /// comes back here.
  void go_to(Fiber& to, void (*function)()) {
    has_begun_ = true;
    if (!to.has_begun_) to.stack_.resize(kStack);
    tell_left(to);
    jump(to, function);
    tell_arrived();
  }
  /// The first that a function of a new fiber must do.
  static void begun() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &left->bottom_, &left->size_);
#endif
  }

 private:
  // The built-in functions keep five words, and know nothing of signals. What is left here is not returned
  // from: the address sanitizer is to mark nothing there.
  [[gnu::noinline, gnu::no_sanitize_address]] void jump(Fiber& to, void (*function)()) {
    if (__builtin_setjmp(here_) != 0) return;
    if (to.has_begun_) continue_at(to.here_);
    to.start(function);
  }
  [[noreturn, gnu::noinline, gnu::no_sanitize_address]] static void continue_at(void** place) {
    __builtin_longjmp(place, 1);
  }

  [[gnu::no_sanitize_address]] void start(void (*function)()) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack = {stack_.data(), 0, stack_.size()};
    context.uc_link = nullptr;
    makecontext(&context, function, 0);
    setcontext(&context);
  }

#ifdef __SANITIZE_ADDRESS__
  void tell_left(Fiber& to) {
    left = this;
    if (!to.has_begun_) {
      to.bottom_ = to.stack_.data();
      to.size_ = to.stack_.size();
    }
    __sanitizer_start_switch_fiber(&fake_stack_, to.bottom_, to.size_);
  }
  void tell_arrived() { __sanitizer_finish_switch_fiber(fake_stack_, &left->bottom_, &left->size_); }
  inline static Fiber* left = nullptr;
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
#else
  void tell_left(Fiber&) {}
  void tell_arrived() {}
#endif

  std::vector<char> stack_;
  bool has_begun_ = false;
  void* here_[5];
};

class Block {
 public:
  /// Runs `kernel` in all threads of the current block.
  void run(dim3 threads, size_t shared, const std::function<void()>& kernel) {
    const size_t count = size_t{threads.x} * threads.y * threads.z;
    if (count == 0 || count % kWarp != 0) fail("a block of other than whole warps");
    kernel_ = &kernel;
    blockDim = threads;
    shared_.assign(shared + kGuard, 0xff);
    if (threads_.size() < count) threads_.resize(count);
    warps_.resize(count / kWarp);
    for (size_t i = 0; i < count; ++i) {
      Thread& thread = threads_[i];
      const auto at = static_cast<unsigned>(i);
      thread.index = {at % threads.x, at / threads.x % threads.y, at / threads.x / threads.y};
      thread.lane = static_cast<int>(i % kWarp);
      thread.warp = i / kWarp;
      thread.state = State::ready;
      thread.exchanges = 0;
      thread.open.clear();
      thread.groups.clear();
    }
    std::vector<size_t> turn(count / kWarp);
    std::iota(turn.begin(), turn.end(), size_t{0});
    if (order == Order::backward) std::reverse(turn.begin(), turn.end());
    do {
      if (order == Order::shuffled) std::shuffle(turn.begin(), turn.end(), engine_);
      for (const size_t warp : turn) run_warp(warp);
    } while (go_on(count));
    for (size_t i = shared; i < shared_.size(); ++i)
      if (shared_[i] != 0xff) fail("a write past the end of shared memory");
  }

  void block_barrier(int vote) {
    current_->vote = vote;
    pause(State::at_block_barrier);
  }
  /// Of the last barrier: whether any thread, or how many, voted.
  int any_vote() const { return any_vote_; }
  void warp_barrier() { pause(State::at_warp_barrier); }

  /// Shows `bytes` of each lane to all lanes of its warp. Two places in turn: a lane that is one exchange
  /// ahead does not write over what others still read.
  const unsigned char* exchange(const void* mine, size_t bytes) {
    if (bytes > kExchange) fail("an exchange of too many bytes");
    auto& place = warps_[current_->warp].shown[current_->exchanges++ % 2];
    std::memcpy(place + size_t(current_->lane) * kExchange, mine, bytes);
    warp_barrier();
    return place;
  }
  int lane() const { return current_->lane; }

  void* shared() { return shared_.data(); }

  void copy(void* to, const void* from, size_t bytes, bool valid) {
    check_aligned(to, bytes);
    check_aligned(from, bytes);
    std::memset(to, 0xff, bytes);
    current_->open.push_back({to, valid ? from : nullptr, bytes});
  }
  void commit() { current_->groups.push_back(std::move(current_->open)); }
  void wait(size_t groups) {
    auto& waiting = current_->groups;
    for (; waiting.size() > groups; waiting.pop_front()) {
      for (const auto& [to, from, bytes] : waiting.front()) {
        if (from != nullptr) {
          std::memcpy(to, from, bytes);
        } else {
          std::memset(to, 0, bytes);
        }
      }
    }
  }

  static void check_aligned(const void* at, size_t bytes = 16) {
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0) fail("an access that is not aligned");
  }
  [[noreturn]] static void fail(const char* what) {
    // Fibers do not unwind into each other.
    std::fprintf(stderr, "kernel on the host: %s (block %u %u %u, thread %u %u %u)\n", what, blockIdx.x,
                 blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    std::abort();
  }

  static Block& get() {
    static Block block;
    return block;
  }

 private:
  enum class State { ready, at_block_barrier, at_warp_barrier, done };
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  struct Thread {
    Fiber* fiber = nullptr;  // once it has begun, until it is done
    uint3 index;
    int lane, vote;
    size_t warp;
    State state;
    unsigned exchanges;
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
  };
  struct Warp {
    alignas(16) unsigned char shown[2][kWarp * kExchange];
  };
  static constexpr size_t kGuard = 256;

  // The next of the warp that is ready to run becomes the current thread, if there is one.
  bool next() {
    while (turn_ < lanes_.size()) {
      Thread& thread = threads_[lanes_[turn_++]];
      if (thread.state != State::ready) continue;
      current_ = &thread;
      threadIdx = thread.index;
      return true;
    }
    return false;
  }

  // Where the current thread runs: its own fiber, or one that is free.
  Fiber& place() {
    if (current_->fiber == nullptr) {
      if (free_.empty()) free_.push_back(&fibers_.emplace_back());
      current_->fiber = free_.back();
      free_.pop_back();
    }
    return *current_->fiber;
  }

  // Leaves a fiber for that of the next thread, or for run_warp() where there is none.
  void leave(Fiber& fiber) {
    Fiber& to = next() ? place() : outside_;
    if (&to != &fiber) fiber.go_to(to, &Block::enter);
  }

  void pause(State state) {
    current_->state = state;
    leave(*current_->fiber);
  }

  // What all fibers do, block after block: thread after thread, as long as these have not begun elsewhere.
  static void enter() {
    Fiber::begun();
    Block& block = get();
    Fiber& own = *block.current_->fiber;
    for (;;) {
      (*block.kernel_)();
      block.current_->state = State::done;
      block.current_->fiber = nullptr;
      block.free_.push_back(&own);
      block.leave(own);
    }
  }

  // Runs a warp as far as it comes without others; or, shuffled, to one of the barriers of its own before.
  void run_warp(size_t warp) {
    std::iota(lanes_.begin(), lanes_.end(), warp * kWarp);
    if (order == Order::backward) std::reverse(lanes_.begin(), lanes_.end());
    do {
      if (order == Order::shuffled) std::shuffle(lanes_.begin(), lanes_.end(), engine_);
      turn_ = 0;
      leave(outside_);
    } while (release_warp(warp) && (order != Order::shuffled || engine_() % 4 != 0));
  }

  // Lets the lanes go on if they are at a barrier of the warp.
  bool release_warp(size_t warp) {
    int waiting = 0;
    for (size_t i = warp * kWarp; i < (warp + 1) * kWarp; ++i)
      waiting += threads_[i].state == State::at_warp_barrier ? 1 : 0;
    if (waiting == 0) return false;
    if (waiting != kWarp) fail("a warp whose lanes are not at one barrier");
    for (size_t i = warp * kWarp; i < (warp + 1) * kWarp; ++i) threads_[i].state = State::ready;
    return true;
  }

  // Whether there is more to run. Lets all go on once they are at the block's barrier.
  bool go_on(size_t count) {
    bool done = true;
    int any = 0;
    for (size_t i = 0; i < count; ++i) {
      const Thread& thread = threads_[i];
      if (thread.state == State::ready) return true;
      done = done && thread.state == State::done;
      if (thread.state == State::at_block_barrier) any |= thread.vote;
    }
    if (done) return false;
    any_vote_ = any;
    for (size_t i = 0; i < count; ++i) {
      if (threads_[i].state == State::done) fail("a barrier that not all threads reach");
      threads_[i].state = State::ready;
    }
    return true;
  }

  const std::function<void()>* kernel_ = nullptr;
  std::vector<Thread> threads_;
  std::deque<Fiber> fibers_;  // which stay where they are
  std::vector<Fiber*> free_;
  Fiber outside_;                      // the caller's
  std::array<size_t, kWarp> lanes_{};  // the warp that runs, in its order
  size_t turn_ = 0;
  std::vector<Warp> warps_;
  std::vector<unsigned char> shared_;  // from malloc: aligned to 16 bytes
  Thread* current_ = nullptr;
  int any_vote_ = 0;
  std::minstd_rand engine_{1};
};

}  // namespace stp::simt

// What CUDA's own headers declare for devices alone.

inline void __syncthreads() { stp::simt::Block::get().block_barrier(0); }
inline int __syncthreads_or(int value) {
  stp::simt::Block::get().block_barrier(value);
  return stp::simt::Block::get().any_vote();
}
inline void __syncwarp() { stp::simt::Block::get().warp_barrier(); }

template <typename V>
V __shfl_sync(unsigned, V value, int lane) {
  const unsigned char* shown = stp::simt::Block::get().exchange(&value, sizeof value);
  std::memcpy(&value, shown + size_t(lane % stp::simt::kWarp) * stp::simt::kExchange, sizeof value);
  return value;
}
template <typename V>
V __shfl_xor_sync(unsigned mask, V value, int distance) {
  return __shfl_sync(mask, value, stp::simt::Block::get().lane() ^ distance);
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  const unsigned char mine = vote ? 1 : 0;
  const unsigned char* shown = stp::simt::Block::get().exchange(&mine, 1);
  unsigned lanes = 0;
  for (int lane = 0; lane < stp::simt::kWarp; ++lane)
    lanes |= unsigned{shown[size_t(lane) * stp::simt::kExchange]} << lane;
  return lanes;
}
inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline void sincospif(float x, float* sine, float* cosine) {
  const double angle = static_cast<double>(x) * std::numbers::pi;
  *sine = static_cast<float>(std::sin(angle));
  *cosine = static_cast<float>(std::cos(angle));
}
using std::isfinite;
using std::max;
using std::min;

namespace stp::cuda {

template <typename... Parameters>
cudaError_t launch_kernel(const cudaLaunchConfig_t& config, void (*kernel)(Parameters...),
                          Parameters... parameters) {
  return fake_cuda::launch_kernel(config, address_of(kernel), [=] {
    const dim3 blocks = gridDim = config.gridDim;
    const std::function<void()> body = [&] { kernel(parameters...); };
    for (unsigned z = 0; z < blocks.z; ++z)
      for (unsigned y = 0; y < blocks.y; ++y)
        for (unsigned x = 0; x < blocks.x; ++x) {
          blockIdx = {x, y, z};
          simt::Block::get().run(config.blockDim, config.dynamicSmemBytes, body);
        }
  });
}

inline void* dynamic_shared() { return simt::Block::get().shared(); }

// One exchange for all values: one for each read would take most of the time of attention.
template <typename V>
struct LaneValues {
  V of[simt::kWarp];
  explicit LaneValues(V own) {
    const unsigned char* shown = simt::Block::get().exchange(&own, sizeof own);
    for (int lane = 0; lane < simt::kWarp; ++lane)
      std::memcpy(&of[lane], shown + size_t(lane) * simt::kExchange, sizeof own);
  }
  V operator[](int lane) const { return of[lane]; }
};

inline uint4 load_16(const void* from) {
  simt::Block::check_aligned(from);
  uint4 words;
  std::memcpy(&words, from, sizeof words);
  return words;
}
inline void store_16(void* to, uint4 words) {
  simt::Block::check_aligned(to);
  std::memcpy(to, &words, sizeof words);
}

inline void copy_16_async(void* shared, const void* global, bool valid) {
  simt::Block::get().copy(shared, global, 16, valid);
}
inline void copy_4_async(void* shared, const void* global, bool valid) {
  simt::Block::get().copy(shared, global, 4, valid);
}
inline void commit_copies() { simt::Block::get().commit(); }
template <int kGroups>
void wait_copies() {
  simt::Block::get().wait(kGroups);
}

// Fragments as the PTX ISA lays them out: see target.cuh.

inline void load_matrices(uint32_t (&words)[4], const void* shared_row, bool transposed = false) {
  simt::Block::check_aligned(shared_row);
  simt::Block& block = simt::Block::get();
  const unsigned char* shown = block.exchange(&shared_row, sizeof shared_row);
  const int g = block.lane() / 4, t = block.lane() % 4;
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t two[2];
    for (int i = 0; i < 2; ++i) {
      const int row = transposed ? 2 * t + i : g, column = transposed ? g : 2 * t + i;
      const unsigned char* at;
      std::memcpy(&at, shown + size_t(matrix * 8 + row) * simt::kExchange, sizeof at);
      std::memcpy(&two[i], at + column * 2, 2);
    }
    std::memcpy(&words[matrix], two, 4);
  }
  block.warp_barrier();  // what was read may be written over only now
}
inline void load_matrices_transposed(uint32_t (&words)[4], const void* shared_row) {
  load_matrices(words, shared_row, true);
}
inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  simt::Block& block = simt::Block::get();
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const unsigned char* shown = block.exchange(mine, sizeof mine);
  const auto half = [&](int lane, int word, int which) {
    uint16_t bits;
    std::memcpy(&bits, shown + size_t(lane) * simt::kExchange + size_t(word) * 4 + size_t(which) * 2, 2);
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  };
  const int g = block.lane() / 4, t = block.lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    double sum = 0;
    for (int k = 0; k < 16; ++k) {
      const float left = half(row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2, k % 2);
      const float right = half(column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
      sum += static_cast<double>(left) * static_cast<double>(right);
    }
    c[i] += static_cast<float>(sum);
  }
}

}  // namespace stp::cuda

// How much of a property test's range to walk: all of it in ordinary builds, a sample under the sanitizers,
// which slow everything down severalfold and look for other things.
#pragma once

namespace stp {

#if defined(__SANITIZE_THREAD__)
inline constexpr int kStride = 29;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kStride = 11;
#else
inline constexpr int kStride = 1;
#endif

/// Whether the next case of nested loops is to be run. Every kStride-th is, which is prime, so that
/// all values of all loops come.
class Sample {
 public:
  bool operator()() { return next_++ % kStride == 0; }

 private:
  int next_ = 0;
};

}  // namespace stp

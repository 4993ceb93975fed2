// Memory of tests for kernels that run on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stp::testing_support {

/// Its first element is where device memory could begin; behind the last is a margin that nobody may touch.
/// Copies are of all of it.
template <typename T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t elements)
      : words_((elements + kMargin) * sizeof(T) / sizeof(Word) + 1, Word{kEmpty, kEmpty}), size_(elements) {}
  T* data() { return reinterpret_cast<T*>(words_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(words_.data()); }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool margin_is_untouched() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(words_.data());
    for (size_t i = size_ * sizeof(T); i < words_.size() * sizeof(Word); ++i)
      if (bytes[i] != (kEmpty & 0xff)) return false;
    return true;
  }

 private:
  static constexpr size_t kMargin = 64;
  static constexpr uint64_t kEmpty = 0xabababababababab;
  struct alignas(16) Word {
    uint64_t low, high;
  };
  std::vector<Word> words_;
  size_t size_;
};

}  // namespace stp::testing_support

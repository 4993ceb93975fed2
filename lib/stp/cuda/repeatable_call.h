// Work for a stream that can be told from other work: a kernel, and all that it is called with.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "stp/device/tensor.h"

namespace stp::cuda {

/// Where a tensor's elements are.
using AddressOf = const void* (*)(const Tensor&);

class RepeatableCall {
 public:
  RepeatableCall() = default;
  RepeatableCall(const RepeatableCall&) = delete;
  RepeatableCall& operator=(const RepeatableCall&) = delete;
  virtual ~RepeatableCall() = default;
  /// Gives the stream the call's kernels.
  virtual void issue(cudaStream_t stream) const = 0;
  /// Adds to `words` what tells this call from others: two that add the same do the same with the same
  /// memory.
  virtual void describe(std::string& words, AddressOf address) const = 0;
};

namespace detail {

inline void describe(std::string& words, AddressOf address, const Tensor& tensor) {
  const void* at = tensor && tensor.elements() > 0 ? address(tensor) : nullptr;
  words.append(reinterpret_cast<const char*>(&at), sizeof at);
  for (const int64_t size : {tensor.rows, tensor.columns})
    words.append(reinterpret_cast<const char*>(&size), sizeof size);
  words.push_back(static_cast<char>(tensor.type));
}

template <typename T>
void describe(std::string& words, AddressOf /*address*/, const T& value) {
  // Every bit of it is of its value: no padding.
  static_assert(std::is_floating_point_v<T> || std::has_unique_object_representations_v<T>);
  words.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace detail

/// `kernel` and the types of the values stand for `work`.
template <typename Work, typename... Values>
class CallOf : public RepeatableCall {
 public:
  CallOf(const char* kernel, std::tuple<Values...> values, Work work)
      : kernel_(kernel), values_(std::move(values)), work_(std::move(work)) {}

  void issue(cudaStream_t stream) const override {
    std::apply([&](const Values&... values) { work_(stream, values...); }, values_);
  }
  void describe(std::string& words, AddressOf address) const override {
    words.append(kernel_);
    words.push_back('\0');
    std::apply([&](const Values&... values) { (detail::describe(words, address, values), ...); }, values_);
  }

 private:
  const char* const kernel_;
  const std::tuple<Values...> values_;
  const Work work_;
};

}  // namespace stp::cuda

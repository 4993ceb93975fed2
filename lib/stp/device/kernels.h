// Gives kernels (kernel_arguments.h) to streams. A backend has one function run() for each.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <tuple>

#include "stp/device/device.h"
#include "stp/device/kernel_arguments.h"

namespace stp {

template <typename Kernel>
class Runs {
 protected:
  ~Runs() = default;
  virtual void run(Stream& stream, const Kernel& kernel) = 0;
};
template <typename List>
class RunsAll;
template <typename... Kernel>
class RunsAll<std::tuple<Kernel...>> : public Runs<Kernel>... {
 protected:
  ~RunsAll() = default;
  using Runs<Kernel>::run...;
};

/// The kernels of a device.
class Kernels : public RunsAll<kernel::All> {
 public:
  virtual ~Kernels() = default;

  /// Checks the arguments, then gives the kernel to the stream.
  template <typename Kernel>
  void issue(Stream& stream, const Kernel& kernel) {
    kernel.check();
    if constexpr (requires { kernel.of_vision(); })
      if (kernel.of_vision() && !vision())
        throw std::logic_error("this backend has no kernels for vision encoders");
    run(stream, kernel);
  }
  /// Whether this backend has the kernels that only vision encoders use: attention without mask.
  [[nodiscard]] virtual bool vision() const { return false; }
  /// Before the first call of such a GEMM, whose operands have no memory yet: why there is no kernel for it,
  /// or "".
  virtual std::string lack_of(const kernel::Gemm&) { return ""; }
};

/// Runs all kernels alike, by a template run_any(Stream&, const Kernel&) of `Self`; overloads of run_any
/// handle exceptions. `count`: the first so many kernels of the list.
template <typename Self, size_t count = std::tuple_size_v<kernel::All>>
class KernelsAlike : public KernelsAlike<Self, count - 1> {
 protected:
  using Kernels::run;
  void run(Stream& stream, const std::tuple_element_t<count - 1, kernel::All>& kernel) override {
    static_cast<Self&>(*this).run_any(stream, kernel);
  }
};
template <typename Self>
class KernelsAlike<Self, 0> : public Kernels {};

}  // namespace stp

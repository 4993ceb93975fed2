// Kernels that hand every call to others: for tests that change some calls, or count them.
#pragma once

#include <memory>
#include <utility>

#include "stp/device/kernels.h"

namespace stp::testing_support {

/// `Self` can have overloads of run_any() for the kernels that it changes.
template <typename Self>
class ForwardingKernels : public KernelsAlike<Self> {
 public:
  explicit ForwardingKernels(std::unique_ptr<Kernels> real) : real_(std::move(real)) {}
  [[nodiscard]] bool vision() const override { return real_->vision(); }

  template <typename Kernel>
  void run_any(Stream& stream, const Kernel& kernel) {
    real_->issue(stream, kernel);
  }

 protected:
  std::unique_ptr<Kernels> real_;
};

}  // namespace stp::testing_support

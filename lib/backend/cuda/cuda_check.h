// Temporary, until the one of the device's branch is merged.
#pragma once
#include <stdexcept>
#include <string>
namespace stp {
class CudaError : public std::runtime_error {
 public:
  CudaError(const std::string& call, const std::string& words, const std::string& file, int line)
      : std::runtime_error(call + ": " + words + " at " + file.substr(file.rfind('/') + 1) + ":" +
                           std::to_string(line)) {}
};
}  // namespace stp

// A file of the algorithms that were fastest, by GPU, version of cuBLASLt and GEMM. Devices, processes and
// runs share it: the first that times a GEMM decides for all, so that later runs give the same bits.
#pragma once

#include <string>

namespace stp::cuda {

class GemmWinners {
 public:
  /// `machine`: GPU and version. A file that is not such a list is ignored, with a message, and stays as it
  /// is; so is one in a folder that another process keeps locked. Throws InputError if the file cannot be
  /// read or its folder is not there.
  GemmWinners(std::string file, std::string machine);

  /// The algorithm of a GEMM; "" if none is known.
  [[nodiscard]] std::string find(const std::string& gemm);
  /// Puts `algorithm` in the place of `before`, which find() returned, unless another was there first.
  /// Returns the one that is there.
  [[nodiscard]] std::string keep(const std::string& gemm, const std::string& before,
                                 const std::string& algorithm);

 private:
  std::string file_;  // "": ignored
  std::string machine_;
};

}  // namespace stp::cuda

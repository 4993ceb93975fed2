// cuDNN and NVRTC as cudnn-frontend's headers call them. cudnn_library.cc defines those functions, each as a
// call of the library. The headers' own dynamic loading is not used: it would also need a libcudart on the
// loader's path, while the program contains the runtime.
#pragma once

#include <string>

namespace stp::cuda {

/// Loads both libraries once. Call it first; returns the reason if one is missing, else "". cuDNN loads NVRTC
/// by name and finds the one that is loaded.
std::string load_cudnn();

}  // namespace stp::cuda

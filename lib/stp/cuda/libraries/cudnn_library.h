// cuDNN and NVRTC as cudnn-frontend's headers call them. cudnn_library.cc defines those functions, each as a
// call of the library. The headers' own dynamic loading is not used: it would also need a libcudart on the
// loader's path, while the program contains the runtime.
#pragma once

namespace stp::cuda {

/// Loads both libraries once. Call it first; false if one is missing. cuDNN loads NVRTC by name and finds the
/// one that is loaded.
bool load_cudnn();

}  // namespace stp::cuda

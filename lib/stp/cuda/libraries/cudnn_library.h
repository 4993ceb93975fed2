// cuDNN and NVRTC as cudnn-frontend's headers call them: cudnn_library.cc defines those functions of theirs,
// each as a call of the library's. Not by the headers' own dynamic loading, which would need one libcudart of
// any version on the loader's path as well; the runtime is in the program.
#pragma once

namespace stp::cuda {

/// Loads both, once: cuDNN loads NVRTC by name itself, and finds the one that is there. Before any other
/// call; false where one is not there.
bool load_cudnn();

}  // namespace stp::cuda

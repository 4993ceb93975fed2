# What the CUDA backend links: the toolkit's static runtime. What else it calls is loaded when it is needed
# (lib/stp/cuda/libraries/shared_library.h). STP_CUDA_LACKS says what is missing, "" if nothing is. Installed with the package,
# whose users need the same.
set(STP_CUDA_LACKS "")
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND)
  set(STP_CUDA_LACKS "there is no nvcc")
elseif(CUDAToolkit_VERSION VERSION_LESS 12.0)
  set(STP_CUDA_LACKS "CUDA ${CUDAToolkit_VERSION} has no C++20; 12.0 is the oldest that has")
elseif(NOT TARGET CUDA::cudart_static)
  set(STP_CUDA_LACKS "the CUDA toolkit at ${CUDAToolkit_LIBRARY_DIR} has no static runtime to link")
endif()

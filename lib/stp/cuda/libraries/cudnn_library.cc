#include "stp/cuda/libraries/cudnn_library.h"

#ifdef STP_HAVE_CUDNN_FRONTEND

#include <cuda.h>
#include <cudnn.h>
#include <nvrtc.h>

#include <string>

#include "stp/base/error.h"
#include "stp/cuda/libraries/shared_library.h"

namespace stp::cuda {
namespace {

const SharedLibrary& nvrtc() {
  static const SharedLibrary library("libnvrtc.so." + std::to_string(CUDA_VERSION / 1000));
  return library;
}

const SharedLibrary& cudnn() {
  static const SharedLibrary library("libcudnn.so." + std::to_string(CUDNN_MAJOR));
  return library;
}

}  // namespace

std::string load_cudnn() {
  try {
    nvrtc();
    cudnn();
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace stp::cuda

// The body of a function that calls the library's function of the same name.
#define STP_CALL_LOADED(library, name, ...)                                            \
  static const auto loaded = ::stp::cuda::library().function<decltype(::name)>(#name); \
  return loaded(__VA_ARGS__)

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the names are ours
extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  STP_CALL_LOADED(cudnn, cudnnBackendCreateDescriptor, type, descriptor);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  STP_CALL_LOADED(cudnn, cudnnBackendDestroyDescriptor, descriptor);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variants) {
  STP_CALL_LOADED(cudnn, cudnnBackendExecute, handle, plan, variants);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  STP_CALL_LOADED(cudnn, cudnnBackendFinalize, descriptor);
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                       void* elements) {
  STP_CALL_LOADED(cudnn, cudnnBackendGetAttribute, descriptor, name, type, requested, count, elements);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  STP_CALL_LOADED(cudnn, cudnnBackendSetAttribute, descriptor, name, type, count, elements);
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { STP_CALL_LOADED(cudnn, cudnnCreate, handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { STP_CALL_LOADED(cudnn, cudnnDestroy, handle); }
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  STP_CALL_LOADED(cudnn, cudnnGetStream, handle, stream);
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  STP_CALL_LOADED(cudnn, cudnnSetStream, handle, stream);
}
const char* cudnnGetErrorString(cudnnStatus_t status) { STP_CALL_LOADED(cudnn, cudnnGetErrorString, status); }
void cudnnGetLastErrorString(char* message, size_t size) {
  STP_CALL_LOADED(cudnn, cudnnGetLastErrorString, message, size);
}
size_t cudnnGetVersion() { STP_CALL_LOADED(cudnn, cudnnGetVersion); }

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name, int count,
                               const char* const* headers, const char* const* names) {
  STP_CALL_LOADED(nvrtc, nvrtcCreateProgram, program, source, name, count, headers, names);
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  STP_CALL_LOADED(nvrtc, nvrtcCompileProgram, program, count, options);
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  STP_CALL_LOADED(nvrtc, nvrtcDestroyProgram, program);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  STP_CALL_LOADED(nvrtc, nvrtcGetCUBIN, program, cubin);
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  STP_CALL_LOADED(nvrtc, nvrtcGetCUBINSize, program, size);
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) {
  STP_CALL_LOADED(nvrtc, nvrtcGetPTX, program, ptx);
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
  STP_CALL_LOADED(nvrtc, nvrtcGetPTXSize, program, size);
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  STP_CALL_LOADED(nvrtc, nvrtcGetProgramLog, program, log);
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  STP_CALL_LOADED(nvrtc, nvrtcGetProgramLogSize, program, size);
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

#endif

#include "stp/cuda/nccl/nccl_api.h"

#include <string>

#include "stp/cuda/libraries/shared_library.h"

namespace stp::cuda {
namespace {

NcclApi load() {
  const SharedLibrary library("libnccl.so." + std::to_string(NCCL_MAJOR));
  NcclApi api{};
  STP_TAKE_FUNCTION(api, library, ncclGetVersion);
  STP_TAKE_FUNCTION(api, library, ncclGetErrorString);
  STP_TAKE_FUNCTION(api, library, ncclGetLastError);
  STP_TAKE_FUNCTION(api, library, ncclGetUniqueId);
  STP_TAKE_FUNCTION(api, library, ncclCommInitRankConfig);
  STP_TAKE_FUNCTION(api, library, ncclCommGetAsyncError);
  STP_TAKE_FUNCTION(api, library, ncclCommFinalize);
  STP_TAKE_FUNCTION(api, library, ncclCommDestroy);
  STP_TAKE_FUNCTION(api, library, ncclCommAbort);
  STP_TAKE_FUNCTION(api, library, ncclGroupStart);
  STP_TAKE_FUNCTION(api, library, ncclGroupEnd);
  STP_TAKE_FUNCTION(api, library, ncclAllReduce);
  STP_TAKE_FUNCTION(api, library, ncclAllGather);
  STP_TAKE_FUNCTION(api, library, ncclReduceScatter);
  STP_TAKE_FUNCTION(api, library, ncclSend);
  STP_TAKE_FUNCTION(api, library, ncclRecv);
  STP_TAKE_FUNCTION(api, library, ncclMemAlloc);
  STP_TAKE_FUNCTION(api, library, ncclMemFree);
#ifdef STP_NCCL_WINDOWS
  STP_TAKE_FUNCTION(api, library, ncclCommWindowRegister);
  STP_TAKE_FUNCTION(api, library, ncclCommWindowDeregister);
#endif
  return api;
}

}  // namespace

const NcclApi& nccl() {
  static const NcclApi api = load();
  return api;
}

}  // namespace stp::cuda

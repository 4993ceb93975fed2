#include "stp/cuda/nccl_api.h"

#include <string>

#include "stp/cuda/shared_library.h"

namespace stp::cuda {

NcclApi loaded_nccl() {
  static const SharedLibrary library("libnccl.so." + std::to_string(NCCL_MAJOR));
  NcclApi api;
  api.get_version = library.function<decltype(ncclGetVersion)>("ncclGetVersion");
  api.get_error_string = library.function<decltype(ncclGetErrorString)>("ncclGetErrorString");
  api.get_last_error = library.function<decltype(ncclGetLastError)>("ncclGetLastError");
  api.get_unique_id = library.function<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  api.comm_init_rank_config = library.function<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  api.comm_get_async_error = library.function<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  api.comm_finalize = library.function<decltype(ncclCommFinalize)>("ncclCommFinalize");
  api.comm_destroy = library.function<decltype(ncclCommDestroy)>("ncclCommDestroy");
  api.comm_abort = library.function<decltype(ncclCommAbort)>("ncclCommAbort");
  api.group_start = library.function<decltype(ncclGroupStart)>("ncclGroupStart");
  api.group_end = library.function<decltype(ncclGroupEnd)>("ncclGroupEnd");
  api.all_reduce = library.function<decltype(ncclAllReduce)>("ncclAllReduce");
  api.all_gather = library.function<decltype(ncclAllGather)>("ncclAllGather");
  api.reduce_scatter = library.function<decltype(ncclReduceScatter)>("ncclReduceScatter");
  api.send = library.function<decltype(ncclSend)>("ncclSend");
  api.recv = library.function<decltype(ncclRecv)>("ncclRecv");
  api.mem_alloc = library.function<decltype(ncclMemAlloc)>("ncclMemAlloc");
  api.mem_free = library.function<decltype(ncclMemFree)>("ncclMemFree");
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  api.comm_window_register = library.function<decltype(ncclCommWindowRegister)>("ncclCommWindowRegister");
  api.comm_window_deregister =
      library.function<decltype(ncclCommWindowDeregister)>("ncclCommWindowDeregister");
#endif
  return api;
}

}  // namespace stp::cuda

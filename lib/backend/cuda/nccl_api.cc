#include "stp/cuda/nccl_api.h"

namespace stp {

NcclApi linked_nccl() {
  NcclApi api;
  api.get_version = ncclGetVersion;
  api.get_error_string = ncclGetErrorString;
  api.get_last_error = ncclGetLastError;
  api.get_unique_id = ncclGetUniqueId;
  api.comm_init_rank_config = ncclCommInitRankConfig;
  api.comm_get_async_error = ncclCommGetAsyncError;
  api.comm_finalize = ncclCommFinalize;
  api.comm_destroy = ncclCommDestroy;
  api.comm_abort = ncclCommAbort;
  api.group_start = ncclGroupStart;
  api.group_end = ncclGroupEnd;
  api.all_reduce = ncclAllReduce;
  api.all_gather = ncclAllGather;
  api.reduce_scatter = ncclReduceScatter;
  api.send = ncclSend;
  api.recv = ncclRecv;
  api.mem_alloc = ncclMemAlloc;
  api.mem_free = ncclMemFree;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  api.comm_window_register = ncclCommWindowRegister;
  api.comm_window_deregister = ncclCommWindowDeregister;
#endif
  return api;
}

}  // namespace stp

// The functions of NCCL that this backend calls: from the library, loaded when they are first
// asked for, or a test's stand-in.
#pragma once

#include <nccl.h>

#include <functional>

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1), "NCCL 2.19 or later is needed");

namespace stp::cuda {

struct NcclApi {
  std::function<decltype(ncclGetVersion)> get_version;
  std::function<decltype(ncclGetErrorString)> get_error_string;
  std::function<decltype(ncclGetLastError)> get_last_error;

  std::function<decltype(ncclGetUniqueId)> get_unique_id;
  std::function<decltype(ncclCommInitRankConfig)> comm_init_rank_config;
  std::function<decltype(ncclCommGetAsyncError)> comm_get_async_error;
  std::function<decltype(ncclCommFinalize)> comm_finalize;
  std::function<decltype(ncclCommDestroy)> comm_destroy;
  std::function<decltype(ncclCommAbort)> comm_abort;

  std::function<decltype(ncclGroupStart)> group_start;
  std::function<decltype(ncclGroupEnd)> group_end;
  std::function<decltype(ncclAllReduce)> all_reduce;
  std::function<decltype(ncclAllGather)> all_gather;
  std::function<decltype(ncclReduceScatter)> reduce_scatter;
  std::function<decltype(ncclSend)> send;
  std::function<decltype(ncclRecv)> recv;

  std::function<decltype(ncclMemAlloc)> mem_alloc;
  std::function<decltype(ncclMemFree)> mem_free;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  std::function<decltype(ncclCommWindowRegister)> comm_window_register;
  std::function<decltype(ncclCommWindowDeregister)> comm_window_deregister;
#endif
};

/// The library's. Throws InputError where it or one of the functions is not there.
NcclApi loaded_nccl();

}  // namespace stp::cuda

// The functions of NCCL that this backend calls, from the library, which is loaded when they are first asked
// for.
#pragma once

#include <nccl.h>

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1), "NCCL 2.19 or later is needed");

namespace stp::cuda {

/// Whether this NCCL has symmetric windows.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
#define STP_NCCL_WINDOWS
#endif

struct NcclApi {
  decltype(::ncclGetVersion)* ncclGetVersion;
  decltype(::ncclGetErrorString)* ncclGetErrorString;
  decltype(::ncclGetLastError)* ncclGetLastError;

  decltype(::ncclGetUniqueId)* ncclGetUniqueId;
  decltype(::ncclCommInitRankConfig)* ncclCommInitRankConfig;
  decltype(::ncclCommGetAsyncError)* ncclCommGetAsyncError;
  decltype(::ncclCommFinalize)* ncclCommFinalize;
  decltype(::ncclCommDestroy)* ncclCommDestroy;
  decltype(::ncclCommAbort)* ncclCommAbort;

  decltype(::ncclGroupStart)* ncclGroupStart;
  decltype(::ncclGroupEnd)* ncclGroupEnd;
  decltype(::ncclAllReduce)* ncclAllReduce;
  decltype(::ncclAllGather)* ncclAllGather;
  decltype(::ncclReduceScatter)* ncclReduceScatter;
  decltype(::ncclSend)* ncclSend;
  decltype(::ncclRecv)* ncclRecv;

  decltype(::ncclMemAlloc)* ncclMemAlloc;
  decltype(::ncclMemFree)* ncclMemFree;
#ifdef STP_NCCL_WINDOWS
  decltype(::ncclCommWindowRegister)* ncclCommWindowRegister;
  decltype(::ncclCommWindowDeregister)* ncclCommWindowDeregister;
#endif
};

/// Of all threads. Throws InputError where the library or one of the functions is not there.
const NcclApi& nccl();

}  // namespace stp::cuda

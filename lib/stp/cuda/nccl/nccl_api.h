// The functions of NCCL that this backend calls. Their library is loaded at first use.
#pragma once

#include <nccl.h>

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1), "NCCL 2.19 or later is needed");

/// Whether this NCCL has symmetric windows.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
#define STP_NCCL_WINDOWS
#define STP_NCCL_WINDOW_FUNCTIONS(use) use(ncclCommWindowRegister) use(ncclCommWindowDeregister)
#else
#define STP_NCCL_WINDOW_FUNCTIONS(use)
#endif

/// Applies `use` to the name of each function.
// clang-format off
#define STP_NCCL_FUNCTIONS(use) \
  use(ncclGetVersion) use(ncclGetErrorString) use(ncclGetLastError) \
  use(ncclGetUniqueId) use(ncclCommInitRankConfig) use(ncclCommSplit) use(ncclCommGetAsyncError) \
  use(ncclCommFinalize) use(ncclCommDestroy) use(ncclCommAbort) \
  use(ncclGroupStart) use(ncclGroupEnd) \
  use(ncclAllReduce) use(ncclAllGather) use(ncclReduceScatter) use(ncclSend) use(ncclRecv) \
  use(ncclMemAlloc) use(ncclMemFree)
// clang-format on

namespace stp::cuda {

struct NcclApi {
#define STP_NCCL_MEMBER(name) decltype(::name)* name;  // NOLINT(bugprone-macro-parentheses): a declaration
  STP_NCCL_FUNCTIONS(STP_NCCL_MEMBER)
  STP_NCCL_WINDOW_FUNCTIONS(STP_NCCL_MEMBER)  // null where the library is older than the headers
#undef STP_NCCL_MEMBER
};

/// One table for all threads. Throws InputError if the library or a function is missing.
const NcclApi& nccl();

}  // namespace stp::cuda

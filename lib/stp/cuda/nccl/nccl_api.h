// The functions of NCCL that this backend calls. Their library is loaded at first use.
#pragma once

#include <nccl.h>

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1), "NCCL 2.19 or later is needed");

/// Applies `use` to the name of each function.
// clang-format off
#define STP_NCCL_FUNCTIONS(use) \
  use(ncclGetVersion) use(ncclGetErrorString) use(ncclGetLastError) \
  use(ncclGetUniqueId) use(ncclCommInitRankConfig) use(ncclCommSplit) use(ncclCommGetAsyncError) \
  use(ncclCommFinalize) use(ncclCommDestroy) use(ncclCommAbort) \
  use(ncclGroupStart) use(ncclGroupEnd) \
  use(ncclAllReduce) use(ncclAllGather) use(ncclReduceScatter) use(ncclSend) use(ncclRecv)
// clang-format on

namespace stp::cuda {

struct NcclApi {
#define STP_NCCL_MEMBER(name) decltype(::name)* name;  // NOLINT(bugprone-macro-parentheses): a declaration
  STP_NCCL_FUNCTIONS(STP_NCCL_MEMBER)
#undef STP_NCCL_MEMBER
};

/// One table for all threads. Throws InputError if the library or a function is missing.
const NcclApi& nccl();

}  // namespace stp::cuda

#include "stp/cuda/nccl/nccl_api.h"

#include <string>

#include "stp/cuda/libraries/shared_library.h"

namespace stp::cuda {
namespace {

NcclApi load_nccl() {
  const SharedLibrary library("libnccl.so." + std::to_string(NCCL_MAJOR));
  NcclApi api{};
#define STP_NCCL_TAKE(name) STP_TAKE_FUNCTION(api, library, name);
  STP_NCCL_FUNCTIONS(STP_NCCL_TAKE)
#undef STP_NCCL_TAKE
  return api;
}

}  // namespace

const NcclApi& nccl() {
  static const NcclApi api = load_nccl();
  return api;
}

}  // namespace stp::cuda

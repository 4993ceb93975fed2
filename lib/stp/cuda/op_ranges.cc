#include "stp/cuda/op_ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)

#include <nvtx3/nvToolsExt.h>

namespace stp::cuda {
namespace {

// NVTX gives no domain where no tool listens.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("stp");
  return handle;
}

}  // namespace

bool profiler_attached() { return domain() != nullptr; }

void begin_op_range(const std::string& words) {
  const std::string name = "PP:" + words;
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.c_str();
  nvtxDomainRangePushEx(domain(), &attributes);
}

void end_op_range() { nvtxDomainRangePop(domain()); }

}  // namespace stp::cuda

#else

namespace stp::cuda {

bool profiler_attached() { return false; }
void begin_op_range(const std::string&) {}
void end_op_range() {}

}  // namespace stp::cuda

#endif

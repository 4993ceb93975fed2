// Groups of ranks that are threads of one process: members meet in shared memory.
#pragma once

#include <memory>

#include "stp/cpu/local_call.h"
#include "stp/device/group_communicator.h"

namespace stp::cpu {

using LocalGroup = GroupCalls<LocalCall>;

class LocalCommunicator : public GroupCommunicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int index)
      : GroupCommunicator(group->size(), index), group_(std::move(group)) {}

 private:
  void enter(Stream& stream, CallPart part, const CallId& id, size_t party) override;

  const std::shared_ptr<LocalGroup> group_;
};

}  // namespace stp::cpu

// Groups of ranks that share one GPU. A call is one joint step of its parties' streams: each waits for the
// others by events, one kernel or copy reads and writes all their buffers, and each goes on when that is
// done.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/issue_order.h"
#include "stp/device/group_communicator.h"

namespace stp::cuda {

/// A call that parties come to in any order, each from its host; the last one's coming has it issued, once
/// their streams are there.
class CudaLocalCall : public JointStep {
 public:
  /// `name` says group and call, `ranks` those of the parties; both for texts of failures.
  CudaLocalCall(std::string name, const std::vector<int>& ranks);

  /// True for the last party.
  bool enter(size_t party, CallPart part, CudaStream& stream, std::shared_ptr<TrafficCounter> counts);

 private:
  struct Party : CallParty {
    CudaStream* on = nullptr;
    std::shared_ptr<TrafficCounter> counts = {};
  };

  void issue();
  void exchange(cudaStream_t stream) const;

  const std::string name_;
  std::mutex mutex_;
  std::vector<Party> parties_;
  size_t come_ = 0;
};

using CudaLocalGroup = GroupCalls<CudaLocalCall>;

class CudaLocalCommunicator : public GroupCommunicator {
 public:
  /// Throws std::logic_error where the group is larger than one GPU's may be.
  CudaLocalCommunicator(std::shared_ptr<CudaLocalGroup> group, int index);

 private:
  void enter(Stream& stream, CallPart part, const CallId& id, size_t party) override;

  const std::shared_ptr<CudaLocalGroup> group_;
};

}  // namespace stp::cuda

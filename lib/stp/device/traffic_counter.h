// What a communicator's end has sent, counted by whoever carries its calls out.
#pragma once

#include <atomic>

#include "stp/device/communicator.h"

namespace stp {

class TrafficCounter {
 public:
  /// `bytes`: of what the call was given to send; none of a receive.
  void count(CallKind kind, int64_t bytes) {
    switch (kind) {
      case CallKind::all_reduce:
        all_reduce_ += bytes;
        break;
      case CallKind::all_gather:
        all_gather_ += bytes;
        break;
      case CallKind::reduce_scatter:
        reduce_scatter_ += bytes;
        break;
      case CallKind::send:
        sent_ += bytes;
        break;
      case CallKind::receive:
        break;
    }
    calls_ += 1;
  }
  [[nodiscard]] Traffic traffic() const { return {all_reduce_, all_gather_, reduce_scatter_, sent_, calls_}; }

 private:
  std::atomic<int64_t> all_reduce_{0}, all_gather_{0}, reduce_scatter_{0}, sent_{0}, calls_{0};
};

}  // namespace stp

// Programs without ops, to count memory; what a schedule offloads of empty chunks an outline does not show.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "stp/program/lower.h"

namespace stp {

class Outlines {
 public:
  /// Valid until the next call. Savers with one schedule share most of it.
  const Program& of(const std::shared_ptr<const Schedule>& schedule, const std::vector<int>& layers,
                    const Lowering& lowering) {
    const bool whole = lowering.strategy.offload > 0 && std::ranges::min(layers) == 0;
    if (whole || schedule_ != schedule)
      program_ = whole ? lower(*schedule, layers, lowering) : outline(*schedule, layers, lowering);
    schedule_ = whole ? nullptr : schedule;
    if (!whole) program_->strategy = lowering.strategy;
    return *program_;
  }

 private:
  std::optional<Program> program_;
  std::shared_ptr<const Schedule> schedule_;
};

}  // namespace stp

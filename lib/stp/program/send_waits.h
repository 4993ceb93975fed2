// The sends of its own rank that a block waits for (docs/architecture.md, section 5, release). Private to
// this module.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "stp/program/builder.h"
#include "stp/program/lower.h"

namespace stp {

class SendWaits {
 public:
  SendWaits(Release release, int chunks)
      : release_(is_batched(release, chunks) ? Release::megatron_batched : release) {}

  void begin_rank() { earlier_ = {}; }
  void begin_block(const Block& block) {
    const auto actions = block.actions();
    weights_alone_ = std::ranges::all_of(
        actions, [](const Action& a) { return a.pass == Pass::W || is_of_vocabulary(a.pass); });
    current_.backward = actions.back().pass != Pass::F;
    current_.sends.clear();
  }
  /// A send of the current block.
  void add(Ref send) { current_.sends.push_back(send); }
  void end_block() {
    if (is_overlapped(release_)) {
      if (weights_alone_) return;
      std::rotate(earlier_.begin(), earlier_.end() - 1, earlier_.end());
    }
    earlier_[0] = current_;
  }

  /// Calls wait(send) for each send that the current block waits for.
  template <typename Wait>
  void for_each(Wait wait) const {
    for (size_t before = 0; before < earlier_.size(); ++before)
      if (waits_for(before))
        for (const Ref send : earlier_[before].sends) wait(send);
  }

 private:
  struct BlockSends {
    bool backward = false;  // the block's last action is no forward
    std::vector<Ref> sends;
  };

  // Weight gradients receive nothing, so most trainers start them at once.
  [[nodiscard]] bool waits_for(size_t before) const {
    if (release_ == Release::blocking || release_ == Release::megatron_batched) return before == 0;
    if (release_ == Release::chain || release_ == Release::block || weights_alone_) return false;
    if (release_ == Release::released || earlier_[0].backward == current_.backward) return before == 0;
    return before == 2 || (before == 0 && current_.backward && release_ == Release::megatron_0_18);
  }

  const Release release_;
  bool weights_alone_ = false;
  BlockSends current_;
  std::array<BlockSends, 3> earlier_;  // the latest first; only overlapped releases look beyond it
};

}  // namespace stp

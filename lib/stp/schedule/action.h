// The parts of a schedule: passes, actions, blocks. docs/architecture.md defines their text forms.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stp {

/// F forward, I input gradient, W weight gradient, B full backward (I and W fused).
/// The zero-bubble and STP papers write B for our I and BW for our B.
/// Vocabulary parallelism (arXiv 2411.05288; docs/program-options.md) adds passes of every rank, on its share
/// of the vocabulary, written with chunk 0: S the head's forward, T its gradients, or U its weights' alone
/// where S made its input's; E the embedding's forward, G its gradient.
enum class Pass : uint8_t { F, I, W, B, S, T, U, E, G };
inline constexpr std::string_view kPassLetters = "FIWBSTUEG";
inline constexpr size_t kPasses = kPassLetters.size();

constexpr char letter(Pass pass) { return kPassLetters[static_cast<size_t>(pass)]; }
/// Whether all ranks run the pass, each on its share of the vocabulary.
constexpr bool is_of_vocabulary(Pass pass) { return pass >= Pass::S; }
/// I and B: the passes that send a gradient to the previous virtual stage.
constexpr bool is_backward(Pass pass) { return pass == Pass::I || pass == Pass::B; }
/// B and W: the last passes that need a microbatch's saved tensors.
constexpr bool ends_life(Pass pass) { return pass == Pass::B || pass == Pass::W; }

/// One pass of one microbatch over one chunk of its rank, written `F0.3`.
struct Action {
  Pass pass{};
  int16_t chunk{};
  int32_t microbatch{};
  auto operator<=>(const Action&) const = default;  // NOLINT(modernize-use-nullptr): of clang-tidy 14
};

/// One action, or a braid of two, written `F0.3&B0.1`. The first action sends first.
class Block {
 public:
  Block() = default;
  Block(Action only) : actions_{only, {}}, size_(1) {}  // NOLINT: an action is a block of one
  Block(Action first, Action second) : actions_{first, second}, size_(2) {}

  [[nodiscard]] std::span<const Action> actions() const { return {actions_.data(), size_}; }
  [[nodiscard]] bool braided() const { return size_ == 2; }
  bool operator==(const Block& other) const { return size_ == other.size_ && actions_ == other.actions_; }

 private:
  std::array<Action, 2> actions_{};
  uint32_t size_ = 0;
};

std::string to_string(const Action& action);
std::string to_string(const Block& block);

/// Parses all of `text`. Throws InputError, to which the caller adds `field` and `file`.
Block parse_block(std::string_view text);

}  // namespace stp

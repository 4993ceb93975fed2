#include "stp/schedule/action.h"

#include <charconv>
#include <limits>

#include "stp/base/error.h"

namespace stp {
namespace {

InputError bad_block(std::string_view text) {
  return {"", "", "\"" + std::string(text) + "\" is not a block",
          "write an action such as F0.3 (pass F, I, W or B, or S, T, U, E or G of the vocabulary; chunk, "
          "microbatch) or two joined by &"};
}

// Reads a number without sign or leading zeros from the front of `rest`; -1 if there is none.
int64_t take_number(std::string_view& rest, int64_t limit) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const auto length = static_cast<size_t>(end - rest.data());
  if (error != std::errc() || number < 0 || number > limit || rest[0] == '-' ||
      (rest[0] == '0' && length > 1))
    return -1;
  rest.remove_prefix(length);
  return number;
}

// Reads an action from the front of `rest`; false if there is none.
bool take_action(std::string_view& rest, Action& action) {
  if (rest.empty()) return false;
  const size_t pass = kPassLetters.find(rest[0]);
  if (pass == std::string_view::npos) return false;
  rest.remove_prefix(1);
  const int64_t chunk = take_number(rest, std::numeric_limits<int16_t>::max());
  if (chunk < 0 || rest.empty() || rest[0] != '.') return false;
  rest.remove_prefix(1);
  const int64_t microbatch = take_number(rest, std::numeric_limits<int32_t>::max());
  if (microbatch < 0) return false;
  action = {static_cast<Pass>(pass), static_cast<int16_t>(chunk), static_cast<int32_t>(microbatch)};
  return true;
}

}  // namespace

std::string to_string(const Action& action) {
  return letter(action.pass) + std::to_string(action.chunk) + "." + std::to_string(action.microbatch);
}

std::string to_string(const Block& block) {
  return joined(
      block.actions(), [](const Action& action) { return to_string(action); }, "&");
}

Block parse_block(std::string_view text) {
  std::string_view rest = text;
  Action first, second;
  if (!take_action(rest, first)) throw bad_block(text);
  if (rest.empty()) return first;
  if (rest[0] != '&') throw bad_block(text);
  rest.remove_prefix(1);
  if (!take_action(rest, second) || !rest.empty()) throw bad_block(text);
  return {first, second};
}

}  // namespace stp

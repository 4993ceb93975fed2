// What goes with what: tried, not stated.
#pragma once

#include <string>
#include <vector>

namespace stp {

/// A head and one row per schedule or option of a scenario and the option that it refuses, with the reason.
/// Found by simulating each schedule with each option, and STP with each two (12.1B at TP2 PP4, 8
/// microbatches).
std::vector<std::vector<std::string>> combinations();

}  // namespace stp

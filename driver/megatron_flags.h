// The arguments with which Megatron-LM trains what `stp tune` chose.
#pragma once

#include <string>

#include "tuned.h"

namespace stp {

/// Megatron-Core's arguments (megatron/training/arguments.py), one a line, and a comment for each setting
/// that no argument says; "" if it cannot run the choice.
std::string megatron_flags(const Tuned& choice);

}  // namespace stp

// A pass from schedule to schedule: all ranks share the head and the embedding.
#pragma once

#include <string>

#include "stp/schedule/vocabulary.h"

namespace stp {

/// As the authors' methods are called.
constexpr const char* method_name(Vocabulary how) {
  return how == Vocabulary::whole ? "whole" : how == Vocabulary::two_barriers ? "vocab-1" : "vocab-2";
}
/// "v-half+vocab-2": what an order is called that is made to share the vocabulary.
std::string shared_name(const std::string& order, Vocabulary how);

/// Adds the vocabulary's passes to a valid order, by the rule of docs/program-options.md; `how` is not whole.
/// For each barrier one more microbatch is alive. Throws InputError if the order has two pipelines or these
/// passes already.
Schedule share_vocabulary(Schedule schedule, Vocabulary how);

}  // namespace stp

// A pass from schedule to schedule: all ranks share the head and the embedding.
#pragma once

#include <string>

#include "stp/schedule/vocabulary.h"

namespace stp {

/// "vocab-1" with two barriers and "vocab-2" with one, as the authors' methods; "" without any.
std::string method_name(Vocabulary shared);

/// Adds the vocabulary's passes to a valid order, by the rule of docs/program-options.md, and `shared`'s name
/// to the order's. For each barrier one more microbatch is alive. Throws InputError if the order has two
/// pipelines or these passes already.
Schedule share_vocabulary(Schedule schedule, Vocabulary shared);

}  // namespace stp

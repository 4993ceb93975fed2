// The tensors that exchanges between ops of a unit send and bring: of a ring of context parallelism, of its
// all-to-alls, and of tensor-parallel rings.
#pragma once

#include "stp/runtime/units.h"

namespace stp {

/// The tensors of an exchange, as work of `stream`: of a ring, what this rank sends the next, and where it
/// gets the same from the rank before; of an all-to-all, a block of as many rows as this rank has for each
/// rank of its group, or from it. The first exchange takes the own keys and values together, or makes room
/// for all rows; the sums of gradients so far are completed before they are sent.
struct ExchangeTensors {
  Tensor sent, received;
};
ExchangeTensors exchange_tensors(const UnitContext& context, Stream& stream, const Op& op, SavedUnit& saved);
/// After the exchange was given to `stream`: releases what it has sent where nothing else uses it. What an
/// all-to-all brought goes to its places.
void finish_exchange(const UnitContext& context, Stream& stream, const Op& op, ExchangeTensors tensors,
                     SavedUnit& saved);

}  // namespace stp

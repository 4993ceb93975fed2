// The tensors of exchanges between ops of a unit: context-parallel rings and all-to-alls, and tensor-parallel
// rings.
#pragma once

#include "stp/runtime/units.h"

namespace stp {

/// Prepares an exchange's tensors, as work of `stream`. In a ring, this rank sends `sent` to the next rank
/// and receives `received` from the previous rank. In an all-to-all each tensor has one block per rank of the
/// group. The first exchange copies this rank's keys and values together, or makes memory for all rows. Sums
/// of gradients are completed before they are sent.
struct ExchangeTensors {
  Tensor sent, received;
};
ExchangeTensors exchange_tensors(const UnitContext& context, Stream& stream, const Op& op, SavedUnit& saved);
/// Call after the exchange was given to `stream`: releases sent tensors that nothing else uses. After an
/// all-to-all it copies the received blocks to their places.
void finish_exchange(const UnitContext& context, Stream& stream, const Op& op, ExchangeTensors tensors,
                     SavedUnit& saved);

}  // namespace stp

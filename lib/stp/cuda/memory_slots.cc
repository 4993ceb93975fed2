#include "stp/cuda/memory_slots.h"

#include <algorithm>
#include <utility>

namespace stp::cuda {
namespace {

/// Sizes are told apart by so many bytes.
constexpr size_t kGrain = 512;

SlotRef pop(std::map<uint64_t, SlotRef>& slots) { return slots.extract(slots.begin()).mapped(); }

}  // namespace

MemorySlots::Taken MemorySlots::take(const void* stream, size_t bytes) {
  bytes = (std::max<size_t>(bytes, 1) + kGrain - 1) / kGrain * kGrain;
  SlotRef slot = find(free_[bytes], stream);
  const bool is_new = slot == nullptr;
  if (is_new) {
    slot = std::make_shared<MemorySlot>();
    slot->bytes = bytes;
    slot->number = slots_++;
  }
  slot->taken_on = stream;
  slot->period = period_;
  taken_ = true;
  return {std::move(slot), is_new};
}

SlotRef MemorySlots::find(Free& free, const void* stream) {
  const auto own = free.on_stream.find(stream);
  const bool any = own != free.on_stream.end() && !own->second.empty();
  if (any && (free.settled.empty() || own->second.begin()->first < free.settled.begin()->first))
    return pop(own->second);
  if (!free.settled.empty()) return pop(free.settled);
  if (free.left.empty()) return nullptr;
  const Left& oldest = free.left.front();
  if (oldest.stream != stream && !oldest.passed()) return nullptr;
  SlotRef slot = oldest.slot;
  free.left.pop_front();
  return slot;
}

void MemorySlots::give_back(const void* stream, SlotRef slot, const std::function<Passed()>& passed) {
  Free& free = free_[slot->bytes];
  const uint64_t number = slot->number;
  if (slot->taken_on == stream)
    free.on_stream[stream].emplace(number, std::move(slot));
  else
    free.left.push_back({std::move(slot), stream, passed()});
}

std::vector<SlotRef> MemorySlots::settle() {
  std::vector<SlotRef> unused;
  if (std::exchange(taken_, false)) ++period_;
  for (auto entry = free_.begin(); entry != free_.end();) {
    Free& free = entry->second;
    for (auto& [stream, slots] : free.on_stream) free.settled.merge(slots);
    free.on_stream.clear();
    for (Left& left : free.left) free.settled.emplace(left.slot->number, std::move(left.slot));
    free.left.clear();
    for (auto slot = free.settled.begin(); slot != free.settled.end();) {
      const bool keep = slot->second->period + 1 >= period_;
      if (!keep) unused.push_back(slot->second);
      slot = keep ? std::next(slot) : free.settled.erase(slot);
    }
    entry = free.settled.empty() ? free_.erase(entry) : std::next(entry);
  }
  return unused;
}

}  // namespace stp::cuda

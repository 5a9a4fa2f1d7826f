#include "engine/operation_pool.hpp"

#include <new>

namespace syncguard::engine {

bool operation_pool::grow() noexcept {
  chunk fresh{new (std::nothrow) operation[chunk_slots]};
  if (fresh == nullptr) return false;
  const auto first = static_cast<std::uint32_t>(chunks_.size()) * chunk_slots;
  for (std::uint32_t index = chunk_slots; index > 0; --index) {
    operation& slot = fresh[index - 1];
    slot.slot = first + index - 1;
    slot.next = free_;
    free_ = &slot;
  }
  try {
    chunks_.push_back(std::move(fresh));
  } catch (const std::bad_alloc&) {
    free_ = nullptr;  // there was none before, or grow() would not have been called
    return false;
  }
  return true;
}

operation* operation_pool::take() noexcept {
  if (free_ == nullptr && !grow()) return nullptr;
  operation* slot = free_;
  free_ = slot->next;
  slot->next = nullptr;
  return slot;
}

void operation_pool::give_back(operation& slot) noexcept {
  rename(slot);
  slot.state = operation_state::free;
  slot.abandoned = false;
  slot.maybe_applied = false;
  slot.id.reset();
  slot.key.clear();
  slot.done.emplace<std::monostate>();
  slot.failure.reset();
  slot.previous = nullptr;
  slot.next = free_;
  free_ = &slot;
}

operation* operation_pool::find(std::uint32_t slot, std::uint32_t generation) noexcept {
  const std::size_t chunk_index = slot / chunk_slots;
  if (chunk_index >= chunks_.size()) return nullptr;
  operation& found = chunks_[chunk_index][slot % chunk_slots];
  return found.state != operation_state::free && found.generation == generation ? &found : nullptr;
}

}  // namespace syncguard::engine

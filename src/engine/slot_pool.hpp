#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace syncguard::engine {

// Slots that things live in. A slot is named by its index and a generation that changes each time it is given back, so
// a name that is kept too long finds nothing.
//
// A thing has the members slot, generation and next, in_use(), and clear(), which makes it as good as new.
//
// Lifetime: a slot's address stays the same as long as the pool lives.
// Errors: take() returns null where memory cannot be had.
// Allocates: in chunks, when more slots are in use than ever before.
template <class Thing>
class slot_pool {
 public:
  Thing* take() noexcept {
    if (free_ == nullptr && !grow()) return nullptr;
    return std::exchange(free_, std::exchange(free_->next, nullptr));
  }

  void give_back(Thing& slot) noexcept {
    rename(slot);
    slot.clear();
    slot.next = free_;
    free_ = &slot;
  }

  // Makes every name of this slot stale, and goes on using it.
  static void rename(Thing& slot) noexcept { ++slot.generation; }

  Thing* find(std::uint32_t slot, std::uint32_t generation) noexcept {
    const std::size_t chunk_index = slot / chunk_slots;
    if (chunk_index >= chunks_.size()) return nullptr;
    Thing& found = chunks_[chunk_index][slot % chunk_slots];
    return found.in_use() && found.generation == generation ? &found : nullptr;
  }

  // The slot of this index, in use or not; null beyond the last.
  Thing* at(std::size_t index) noexcept {
    return index / chunk_slots < chunks_.size() ? &chunks_[index / chunk_slots][index % chunk_slots] : nullptr;
  }

 private:
  static constexpr std::uint32_t chunk_slots = 256;
  using chunk = std::unique_ptr<Thing[]>;

  bool grow() noexcept {
    chunk fresh{new (std::nothrow) Thing[chunk_slots]};
    if (fresh == nullptr) return false;
    const auto first = static_cast<std::uint32_t>(chunks_.size()) * chunk_slots;
    for (std::uint32_t index = 0; index < chunk_slots; ++index) {
      fresh[index].slot = first + index;
      fresh[index].next = index + 1 < chunk_slots ? &fresh[index + 1] : nullptr;
    }
    Thing* head = &fresh[0];
    try {
      chunks_.push_back(std::move(fresh));
    } catch (const std::bad_alloc&) {
      return false;
    }
    free_ = head;
    return true;
  }

  std::vector<chunk> chunks_;
  Thing* free_ = nullptr;
};

}  // namespace syncguard::engine

#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace syncguard::engine {

// Things by their place: a hash of the key that they are about. Different keys may share a place, so whoever looks for
// one key compares.
//
// A thing has the members place, which may be no more than the lower half of it, and next_at_place. They must not
// change while it is in here.
//
// Ownership: owns nothing.
// Errors: where memory cannot be had it gets slower, and nothing else.
// Allocates: when more things are in it than ever before.
template <class Thing>
class place_table {
 public:
  std::size_t size() const noexcept { return size_; }

  void insert(Thing& item) noexcept {
    if (size_ >= buckets_.size()) grow();
    Thing*& head = bucket_of(item.place);
    item.next_at_place = std::exchange(head, &item);
    ++size_;
  }

  // Requires: it is in here.
  void remove(Thing& item) noexcept {
    Thing** link = &bucket_of(item.place);
    while (*link != &item) link = &(*link)->next_at_place;
    *link = std::exchange(item.next_at_place, nullptr);
    --size_;
  }

  // Calls visit(thing) for each at this place until it returns true. Returns that thing, or null.
  template <class Visit>
  Thing* find(std::uint64_t place, Visit&& visit) {
    for (Thing* each = bucket_of(place); each != nullptr; each = each->next_at_place)
      if (each->place == static_cast<decltype(each->place)>(place) && visit(*each)) return each;
    return nullptr;
  }

  template <class Visit>
  void for_each(Visit&& visit) {
    for (Thing* each = overflow_; each != nullptr; each = each->next_at_place) visit(*each);
    for (Thing* head : buckets_)
      for (Thing* each = head; each != nullptr; each = each->next_at_place) visit(*each);
  }

 private:
  Thing*& bucket_of(std::uint64_t place) noexcept {
    return buckets_.empty() ? overflow_ : buckets_[place & (buckets_.size() - 1)];
  }

  void grow() noexcept {
    std::vector<Thing*> bigger;
    try {
      bigger.resize(buckets_.empty() ? 64 : buckets_.size() * 2, nullptr);
    } catch (const std::bad_alloc&) {
      return;
    }
    const auto move = [&](Thing* each) {
      while (each != nullptr) {
        Thing*& head = bigger[each->place & (bigger.size() - 1)];
        Thing* next = each->next_at_place;
        each->next_at_place = std::exchange(head, each);
        each = next;
      }
    };
    move(std::exchange(overflow_, nullptr));
    for (Thing* head : buckets_) move(head);
    buckets_ = std::move(bigger);
  }

  std::vector<Thing*> buckets_;
  Thing* overflow_ = nullptr;  // while there are no buckets
  std::size_t size_ = 0;
};

}  // namespace syncguard::engine

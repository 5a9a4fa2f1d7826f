#pragma once

#include <cstddef>

namespace syncguard::engine {

// A list through the things themselves, by their members previous and next.
//
// Ownership: owns nothing.
// Allocates: never.
template <class Thing>
class linked_list {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  std::size_t size() const noexcept { return size_; }
  Thing* front() const noexcept { return first_; }

  void push_back(Thing& item) noexcept {
    item.previous = last_;
    item.next = nullptr;
    (last_ != nullptr ? last_->next : first_) = &item;
    last_ = &item;
    ++size_;
  }

  void remove(Thing& item) noexcept {
    (item.previous != nullptr ? item.previous->next : first_) = item.next;
    (item.next != nullptr ? item.next->previous : last_) = item.previous;
    item.previous = item.next = nullptr;
    --size_;
  }

  Thing* pop_front() noexcept {
    Thing* item = first_;
    if (item != nullptr) remove(*item);
    return item;
  }

  // Puts all of `other` in front, in its order.
  void prepend(linked_list& other) noexcept {
    if (other.empty()) return;
    other.last_->next = first_;
    (first_ != nullptr ? first_->previous : last_) = other.last_;
    first_ = other.first_;
    size_ += other.size_;
    other = {};
  }

 private:
  Thing* first_ = nullptr;
  Thing* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace syncguard::engine

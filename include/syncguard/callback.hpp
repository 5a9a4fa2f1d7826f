#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace syncguard {

// The most that a callback may capture. More does not compile: there is no fallback to the heap.
inline constexpr std::size_t callback_capture_max_bytes = 48;

// A callback with one argument, called at most once by this library.
//
// Ownership: owns the callable; move-only.
// Errors: calling an empty one does nothing.
// Allocates: never.
template <class Argument>
class callback {
 public:
  callback() noexcept = default;
  callback(std::nullptr_t) noexcept {}

  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, callback> &&
           std::is_invocable_v<std::remove_cvref_t<Callable>&, Argument>) callback(Callable&& callable) {
    using held = std::remove_cvref_t<Callable>;
    static_assert(sizeof(held) <= callback_capture_max_bytes, "the callback captures more than 48 bytes");
    static_assert(alignof(held) <= alignof(std::max_align_t), "the callback's captures are over-aligned");
    static_assert(std::is_nothrow_move_constructible_v<held>, "the callback must be movable without failing");
    new (storage_) held(std::forward<Callable>(callable));
    table_ = &table_for<held>;
  }

  callback(callback&& other) noexcept { take(other); }
  callback& operator=(callback&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  callback(const callback&) = delete;
  callback& operator=(const callback&) = delete;
  ~callback() { reset(); }

  explicit operator bool() const noexcept { return table_ != nullptr; }

  void operator()(Argument argument) {
    if (table_ != nullptr) table_->call(storage_, std::forward<Argument>(argument));
  }

  void reset() noexcept {
    if (table_ != nullptr) table_->destroy(storage_);
    table_ = nullptr;
  }

 private:
  struct functions {
    void (*call)(void* held, Argument&& argument);
    void (*move)(void* from, void* to) noexcept;
    void (*destroy)(void* held) noexcept;
  };

  template <class Held>
  static constexpr functions table_for{
      [](void* held, Argument&& argument) { (*static_cast<Held*>(held))(std::forward<Argument>(argument)); },
      [](void* from, void* to) noexcept {
        new (to) Held(std::move(*static_cast<Held*>(from)));
        std::destroy_at(static_cast<Held*>(from));
      },
      [](void* held) noexcept { std::destroy_at(static_cast<Held*>(held)); }};

  void take(callback& other) noexcept {
    table_ = other.table_;
    if (table_ != nullptr) table_->move(other.storage_, storage_);
    other.table_ = nullptr;
  }

  const functions* table_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[callback_capture_max_bytes];
};

}  // namespace syncguard

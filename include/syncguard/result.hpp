#pragma once

#include <exception>
#include <type_traits>
#include <utility>
#include <variant>

#include <syncguard/error.hpp>

namespace syncguard {

// A value, or the error that stands in its place.
//
//   result<fence> parsed = fence::parse(text);
//   if (!parsed) return refuse(parsed.error());
//   use(*parsed);
//
// Ownership: a value; it owns what it holds.
// Errors: asking for the value of a failed result, or for the error of a successful one, is a bug in the program and
//   ends it through std::terminate: going on would mean working with a lock that is not there.
// Allocates: never by itself.
template <class T>
class [[nodiscard]] result {
  static_assert(std::is_object_v<T> && !std::is_same_v<T, syncguard::error>);
  static_assert(std::is_nothrow_move_constructible_v<T>, "a result must be movable without failing");

 public:
  using value_type = T;

  result(const T& value) : state_(std::in_place_index<0>, value) {}
  result(T&& value) noexcept : state_(std::in_place_index<0>, std::move(value)) {}
  result(syncguard::error failure) noexcept : state_(std::in_place_index<1>, std::move(failure)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& operator*() & noexcept { return held<0>(state_); }
  const T& operator*() const& noexcept { return held<0>(state_); }
  T&& operator*() && noexcept { return std::move(held<0>(state_)); }
  T* operator->() noexcept { return &held<0>(state_); }
  const T* operator->() const noexcept { return &held<0>(state_); }

  syncguard::error& error() & noexcept { return held<1>(state_); }
  const syncguard::error& error() const& noexcept { return held<1>(state_); }
  syncguard::error&& error() && noexcept { return std::move(held<1>(state_)); }

 private:
  template <std::size_t Index, class State>
  static auto& held(State& state) noexcept {
    auto* found = std::get_if<Index>(&state);
    if (found == nullptr) std::terminate();
    return *found;
  }

  std::variant<T, syncguard::error> state_;
};

// Success without a value, or an error.
template <>
class [[nodiscard]] result<void> {
 public:
  using value_type = void;

  result() noexcept : state_(std::monostate{}) {}
  result(syncguard::error failure) noexcept : state_(std::move(failure)) {}

  bool has_value() const noexcept { return state_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }

  syncguard::error& error() & noexcept { return state_.error(); }
  const syncguard::error& error() const& noexcept { return state_.error(); }
  syncguard::error&& error() && noexcept { return std::move(state_).error(); }

 private:
  result<std::monostate> state_;
};

}  // namespace syncguard

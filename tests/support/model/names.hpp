#pragma once

// The engine's words, as tests write them.

#include <array>
#include <cstddef>
#include <string_view>

#include "engine/engine.hpp"

namespace syncguard::testing {

using engine::batch;
using engine::engine_options;
using engine::operation;
using engine::operation_kind;
using engine::outcome;
using engine::travel_class;
using engine::verdict;

inline std::string_view name_of(operation_kind kind) {
  static constexpr std::array<std::string_view, 8> names{"acquire", "release",   "extend",     "clean_up",
                                                         "inspect", "is_locked", "lookup_key", "lookup_id"};
  return names.at(static_cast<std::size_t>(kind));
}

inline std::string_view name_of(verdict what) {
  static constexpr std::array<std::string_view, 13> names{"acquired",  "contended",  "corrupt", "released", "extended",
                                                          "not_owner", "absent",     "expired", "held",     "free",
                                                          "found",     "unreadable", "failed"};
  return names.at(static_cast<std::size_t>(what));
}

}  // namespace syncguard::testing

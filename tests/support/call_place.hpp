#pragma once

namespace syncguard::testing {

// Where a function was called, for messages. std::source_location, which clang 14 does not have.
struct call_place {
  const char* file;
  int line;

  static constexpr call_place current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

}  // namespace syncguard::testing

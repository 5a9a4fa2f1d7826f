#pragma once

// CMocka for C++. A failed assertion leaves the test through longjmp, past destructors: owners of anything that
// matters belong into set-up and tear-down, and callbacks record what they see and leave judging to the test's body.

#include <setjmp.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

extern "C" {
#include <cmocka.h>
}

namespace syncguard::testing {

// As assert_string_equal, for texts that may hold zero bytes.
inline void assert_text(std::string_view seen, std::string_view wanted, const char* file, int line) {
  if (seen == wanted) return;
  print_error("seen   \"%.*s\" (%zu bytes)\nwanted \"%.*s\" (%zu bytes)\n", static_cast<int>(seen.size()), seen.data(),
              seen.size(), static_cast<int>(wanted.size()), wanted.data(), wanted.size());
  _fail(file, line);
}

}  // namespace syncguard::testing

#define assert_text_equal(seen, wanted) ::syncguard::testing::assert_text((seen), (wanted), __FILE__, __LINE__)

// The outcome of a result<T> that must have failed, with this code.
#define assert_failed_with(outcome, wanted_code)         \
  do {                                                   \
    const auto& judged = (outcome);                      \
    assert_false(judged.has_value());                    \
    assert_true(judged.error().code() == (wanted_code)); \
    assert_false(judged.error().message().empty());      \
  } while (false)

// A line for whoever reads the log: a figure, a seed, the reason of a skip. Test output is TAP, hence the sign.
#define note(format, ...) print_message("# " format "\n" __VA_OPT__(, ) __VA_ARGS__)

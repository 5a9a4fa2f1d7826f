#pragma once

#include <string_view>

#include <syncguard/error.hpp>

namespace syncguard::protocol {

// The code word of an error that Redis answered: `READONLY` for
//   READONLY You can't write against a read only replica.
//   READONLY You can't write against a read only replica. script: 5f1c…, on @user_script:1.
//   ERR Error running script (call to f_5f1c…): @user_script:7: -READONLY You can't write against …
// and `ERR` where there is nothing more telling. Empty where the text does not begin with a code word: then it does
// not come from Redis but from the system or a library.
//
// Lifetime: the result is a view of `text`.
// Allocates: never.
std::string_view reply_code_word(std::string_view text) noexcept;

// What an error's text means to the caller, whoever wrote it: Redis, the system, or a library.
//
// Allocates: never.
error_code classify_error(std::string_view text) noexcept;

}  // namespace syncguard::protocol

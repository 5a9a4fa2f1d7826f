#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace syncguard::redis {

// Writes one command at a time in Redis' own format, into memory that is kept from one to the next.
//
// Allocates: when a command is longer than every one before it.
class resp_writer {
 public:
  void begin(std::size_t arguments) {
    text_.clear();
    header('*', arguments);
  }

  void add(std::string_view argument) {
    header('$', argument.size());
    text_.append(argument);
    text_.append("\r\n", 2);
  }

  void add(std::int64_t number) {
    char digits[20];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    add(std::string_view{digits, end});
  }

  std::string_view text() const noexcept { return text_; }

 private:
  void header(char kind, std::size_t count) {
    char written[24];
    written[0] = kind;
    char* end = std::to_chars(written + 1, written + sizeof written - 2, count).ptr;
    *end++ = '\r';
    *end++ = '\n';
    text_.append(written, static_cast<std::size_t>(end - written));
  }

  std::string text_;
};

}  // namespace syncguard::redis

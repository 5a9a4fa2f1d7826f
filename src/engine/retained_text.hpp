#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace syncguard::engine {

// A text that keeps its memory when it is assigned again, so that a slot which is used over and over allocates only
// for the longest text it has ever held. Short ones never leave the inline buffer.
//
// Errors: assign() returns false where memory cannot be had; the text is then empty.
class retained_text {
 public:
  static constexpr std::size_t inline_bytes = 56;

  retained_text() noexcept {}  // NOLINT(modernize-use-equals-default): the buffer stays uninitialised on purpose
  ~retained_text() { std::free(heap_); }
  retained_text(const retained_text&) = delete;
  retained_text& operator=(const retained_text&) = delete;

  bool assign(std::string_view text) noexcept {
    size_ = 0;
    if (text.size() > capacity_ && !grow(text.size())) return false;
    if (!text.empty()) std::memcpy(data(), text.data(), text.size());
    size_ = text.size();
    return true;
  }

  void clear() noexcept { size_ = 0; }
  std::string_view view() const noexcept { return {heap_ != nullptr ? heap_ : inline_, size_}; }

 private:
  char* data() noexcept { return heap_ != nullptr ? heap_ : inline_; }

  bool grow(std::size_t bytes) noexcept {
    auto* bigger = static_cast<char*>(std::malloc(bytes));
    if (bigger == nullptr) return false;
    std::free(heap_);
    heap_ = bigger;
    capacity_ = bytes;
    return true;
  }

  char* heap_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = inline_bytes;
  char inline_[inline_bytes];
};

}  // namespace syncguard::engine

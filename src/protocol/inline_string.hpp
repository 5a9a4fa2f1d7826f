#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace syncguard::protocol {

// A text in a buffer of its own with a fixed capacity. What does not fit is refused as a whole, never cut off.
//
// Allocates: never. Copying copies the used bytes' buffer in full, so large ones are passed by reference.
template <std::size_t Capacity>
class inline_string {
 public:
  static constexpr std::size_t capacity = Capacity;

  inline_string() noexcept {}  // NOLINT(modernize-use-equals-default): the buffer stays uninitialised on purpose

  std::string_view view() const noexcept { return {bytes_.data(), size_}; }
  std::size_t size() const noexcept { return size_; }
  void clear() noexcept { size_ = 0; }

  // Returns false, and changes nothing, where the text does not fit.
  bool append(std::string_view text) noexcept {
    if (text.size() > Capacity - size_) return false;
    if (!text.empty()) std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
    return true;
  }

 private:
  std::size_t size_ = 0;
  std::array<char, Capacity> bytes_;
};

}  // namespace syncguard::protocol

#include <syncguard/error.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

namespace syncguard {

namespace {

struct code_facts {
  error_code code;
  std::string_view name;
  bool retryable;
};

// In the order of the enum, so that a code is its own index; checked below.
constexpr std::array<code_facts, error_code_count> code_table{{
    {error_code::service_unavailable, "ServiceUnavailable", true},
    {error_code::auth_failed, "AuthFailed", false},
    {error_code::invalid_argument, "InvalidArgument", false},
    {error_code::rate_limited, "RateLimited", true},
    {error_code::network_timeout, "NetworkTimeout", true},
    {error_code::acquisition_timeout, "AcquisitionTimeout", true},
    {error_code::aborted, "Aborted", false},
    {error_code::internal, "Internal", false},
}};

consteval bool table_follows_enum() {
  for (std::size_t index = 0; index < code_table.size(); ++index)
    if (static_cast<std::size_t>(code_table[index].code) != index) return false;
  return true;
}
static_assert(table_follows_enum());

void append_quoted(std::string& line, std::string_view text) {
  static constexpr std::string_view hex = "0123456789abcdef";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) {
      line += "\\x";
      line += hex[byte >> 4];
      line += hex[byte & 0xf];
    } else {
      line += character;
    }
  }
}

}  // namespace

std::string_view to_string(error_code code) noexcept {
  const auto index = static_cast<std::size_t>(code);
  return index < code_table.size() ? code_table[index].name : std::string_view{"Unknown"};
}

struct error::context {
  std::uint16_t key_bytes;
  std::uint16_t lock_id_bytes;
  std::uint16_t cause_bytes;

  char* text() noexcept { return reinterpret_cast<char*>(this + 1); }
  const char* text() const noexcept { return reinterpret_cast<const char*>(this + 1); }
};

void error::context_deleter::operator()(context* block) const noexcept { std::free(block); }

error::context_pointer error::make_context(std::string_view key, std::string_view lock_id,
                                           std::string_view cause) noexcept {
  key = key.substr(0, key_max_bytes);
  lock_id = lock_id.substr(0, lock_id_max_bytes);
  cause = cause.substr(0, cause_max_bytes);
  const std::size_t text_bytes = key.size() + lock_id.size() + cause.size();
  if (text_bytes == 0) return nullptr;

  void* memory = std::malloc(sizeof(context) + text_bytes);
  if (memory == nullptr) return nullptr;
  auto* block = new (memory) context{static_cast<std::uint16_t>(key.size()), static_cast<std::uint16_t>(lock_id.size()),
                                     static_cast<std::uint16_t>(cause.size())};
  char* end = std::copy(key.begin(), key.end(), block->text());
  end = std::copy(lock_id.begin(), lock_id.end(), end);
  std::copy(cause.begin(), cause.end(), end);
  return context_pointer{block};
}

error::error(const error& other) noexcept
    : message_(other.message_),
      context_(make_context(other.key(), other.lock_id(), other.cause())),
      code_(other.code_),
      outcome_unknown_(other.outcome_unknown_) {}

error& error::operator=(const error& other) noexcept {
  if (this != &other) *this = error{other};
  return *this;
}

std::string_view error::key() const noexcept {
  if (!context_) return {};
  return {context_->text(), context_->key_bytes};
}

std::string_view error::lock_id() const noexcept {
  if (!context_) return {};
  return {context_->text() + context_->key_bytes, context_->lock_id_bytes};
}

std::string_view error::cause() const noexcept {
  if (!context_) return {};
  return {context_->text() + context_->key_bytes + context_->lock_id_bytes, context_->cause_bytes};
}

bool error::retryable() const noexcept {
  const auto index = static_cast<std::size_t>(code_);
  return index < code_table.size() && code_table[index].retryable;
}

error& error::with_context(std::string_view key, std::string_view lock_id, std::string_view cause) noexcept {
  context_ = make_context(key, lock_id, cause);
  return *this;
}

std::string describe(const error& what) {
  std::string line{to_string(what.code())};
  line += ": ";
  line += what.message();

  std::string_view separator = " (";
  const auto append = [&](std::string_view before, std::string_view text, std::string_view after) {
    if (text.empty()) return;
    line += separator;
    separator = ", ";
    line += before;
    append_quoted(line, text);
    line += after;
  };
  append("key \"", what.key(), "\"");
  append("lock id ", what.lock_id(), "");
  append("cause: ", what.cause(), "");
  if (what.outcome_unknown()) append("", "outcome unknown", "");
  if (separator == ", ") line += ')';
  return line;
}

}  // namespace syncguard

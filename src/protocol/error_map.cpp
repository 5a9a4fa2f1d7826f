#include "protocol/error_map.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace syncguard::protocol {

namespace {

struct meaning {
  std::string_view text;
  error_code code;
};

// Code words of Redis, and the system's names for errors: matched as whole words.
constexpr auto words = std::to_array<meaning>({
    {"NOAUTH", error_code::auth_failed},
    {"WRONGPASS", error_code::auth_failed},
    {"NOPERM", error_code::auth_failed},
    {"WRONGTYPE", error_code::invalid_argument},
    {"SYNTAX", error_code::invalid_argument},
    {"INVALID", error_code::invalid_argument},
    {"READONLY", error_code::service_unavailable},
    {"LOADING", error_code::service_unavailable},
    {"MASTERDOWN", error_code::service_unavailable},
    {"CLUSTERDOWN", error_code::service_unavailable},
    {"TRYAGAIN", error_code::service_unavailable},
    {"NOREPLICAS", error_code::service_unavailable},
    {"BUSY", error_code::service_unavailable},
    {"MISCONF", error_code::service_unavailable},
    {"OOM", error_code::rate_limited},
    {"ETIMEDOUT", error_code::network_timeout},
    {"ECONNREFUSED", error_code::service_unavailable},
    {"ECONNRESET", error_code::service_unavailable},
    {"ECONNABORTED", error_code::service_unavailable},
    {"ENOTFOUND", error_code::service_unavailable},
    {"EAI_AGAIN", error_code::service_unavailable},
    {"EAI_NONAME", error_code::service_unavailable},
    {"EAI_NODATA", error_code::service_unavailable},
    {"EAI_FAIL", error_code::service_unavailable},
    {"EPIPE", error_code::service_unavailable},
    {"ENOENT", error_code::service_unavailable},
    {"EHOSTUNREACH", error_code::service_unavailable},
    {"ENETUNREACH", error_code::service_unavailable},
});

// How a plain `ERR` goes on, in lower case, where that says more.
constexpr auto plain_errors = std::to_array<meaning>({
    {"invalid password", error_code::auth_failed},
    {"auth ", error_code::auth_failed},
    {"client sent auth", error_code::auth_failed},
    {"the user executing the script can't", error_code::auth_failed},  // NOPERM, as 7.0 says it inside a script
    {"invalid ", error_code::invalid_argument},
    {"syntax ", error_code::invalid_argument},
    {"db index ", error_code::invalid_argument},
    {"max number of clients", error_code::service_unavailable},
});

// What the system and libraries say in plain words, in lower case, anywhere in the text.
constexpr auto phrases = std::to_array<meaning>({
    {"timeout", error_code::network_timeout},
    {"timed out", error_code::network_timeout},
    {"connection refused", error_code::service_unavailable},
    {"connection reset", error_code::service_unavailable},
    {"connection abort", error_code::service_unavailable},
    {"not connected", error_code::service_unavailable},
    {"end of file", error_code::service_unavailable},
    {"broken pipe", error_code::service_unavailable},
    {"closed the connection", error_code::service_unavailable},
    {"name or service not known", error_code::service_unavailable},
    {"unknown node or service", error_code::service_unavailable},
    {"nodename nor servname", error_code::service_unavailable},
    {"temporary failure", error_code::service_unavailable},
    {"permanent failure", error_code::service_unavailable},
    {"no address", error_code::service_unavailable},
    {"too many open files", error_code::service_unavailable},
    {"is down", error_code::service_unavailable},
    {"no such file or directory", error_code::service_unavailable},
    {"no route to host", error_code::service_unavailable},
    {"is unreachable", error_code::service_unavailable},
});

constexpr char lower(char character) noexcept {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
}

bool same_ignoring_case(char left, char right) noexcept { return lower(left) == right; }

bool starts_with_ignoring_case(std::string_view text, std::string_view lower_case) noexcept {
  return text.size() >= lower_case.size() &&
         std::equal(lower_case.begin(), lower_case.end(), text.begin(),
                    [](char wanted, char there) { return same_ignoring_case(there, wanted); });
}

bool contains_ignoring_case(std::string_view text, std::string_view lower_case) noexcept {
  return std::search(text.begin(), text.end(), lower_case.begin(), lower_case.end(), same_ignoring_case) != text.end();
}

constexpr bool in_word(char character) noexcept { return (character >= 'A' && character <= 'Z') || character == '_'; }

// The capital letters at the front, where a blank or the end follows; else nothing.
std::string_view leading_word(std::string_view text) noexcept {
  const auto end = static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), in_word) - text.begin());
  if (end < 2 || (end < text.size() && text[end] != ' ')) return {};
  return text.substr(0, end);
}

std::optional<error_code> meaning_of_word(std::string_view word) noexcept {
  const auto* found =
      std::find_if(words.begin(), words.end(), [&](const meaning& known) { return known.text == word; });
  if (found == words.end()) return std::nullopt;
  return found->code;
}

// Servers before 7.0 wrap what a command inside a script answered.
std::string_view word_inside_script_error(std::string_view text) noexcept {
  constexpr std::string_view marker = ": -";
  if (!text.starts_with("ERR Error running script")) return {};
  const auto at = text.rfind(marker);
  return at == std::string_view::npos ? std::string_view{} : leading_word(text.substr(at + marker.size()));
}

// `word` is a part of `text`; what follows it says more.
error_code classify_reply(std::string_view text, std::string_view word) noexcept {
  if (const auto known = meaning_of_word(word)) return *known;
  const auto end = static_cast<std::size_t>(word.data() + word.size() - text.data());
  if (word != "ERR" || text.size() <= end) return error_code::internal;
  const std::string_view rest = text.substr(end + 1);
  for (const meaning& known : plain_errors)
    if (starts_with_ignoring_case(rest, known.text)) return known.code;
  return error_code::internal;
}

error_code classify_system_text(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (at > 0 && text[at - 1] != ' ') continue;
    if (const auto known = meaning_of_word(leading_word(text.substr(at)))) return *known;
  }
  for (const meaning& known : phrases)
    if (contains_ignoring_case(text, known.text)) return known.code;
  return error_code::internal;
}

}  // namespace

std::string_view reply_code_word(std::string_view text) noexcept {
  const std::string_view inside = word_inside_script_error(text);
  return inside.empty() ? leading_word(text) : inside;
}

error_code classify_error(std::string_view text) noexcept {
  const std::string_view word = reply_code_word(text);
  return word.empty() ? classify_system_text(text) : classify_reply(text, word);
}

}  // namespace syncguard::protocol

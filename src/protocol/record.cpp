#include "protocol/record.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include <yyjson.h>

namespace syncguard::protocol {

namespace {

// What yyjson needs at most for a text: 13 bytes for each byte and 256 more, and a little for its own chunks.
constexpr std::size_t pool_bytes = record_max_bytes * 13 + 1024;

// Beyond this, a number may have lost its last digits on the way through a double.
constexpr std::int64_t exact_max = std::int64_t{1} << 53;

enum field : std::size_t { lock_id_field, expires_field, acquired_field, key_field, fence_field, field_count };

struct field_facts {
  std::string_view name;
  std::string_view legacy_name;
  static_text missing;
  static_text repeated;
  static_text malformed;
};

constexpr std::array<field_facts, field_count> fields_of_record{{
    {"lockId", "lockId", "lockId is missing", "lockId occurs twice", "lockId is not a lock id"},
    {"expiresAtMs", "expiresAt", "expiresAtMs is missing", "expiresAtMs occurs twice",
     "expiresAtMs is not a whole number of milliseconds"},
    {"acquiredAtMs", "createdAt", "acquiredAtMs is missing", "acquiredAtMs occurs twice",
     "acquiredAtMs is not a whole number of milliseconds"},
    {"key", "key", "key is missing", "key occurs twice", "key is not a text of 1 to 512 bytes"},
    {"fence", "", "fence is missing", "fence occurs twice", "fence is not a text of 15 digits"},
}};

struct found_field {
  yyjson_val* value = nullptr;
  bool repeated = false;
};
using found_fields = std::array<found_field, field_count>;

std::string_view text_of(yyjson_val* value) noexcept {
  if (!yyjson_is_str(value)) return {};
  return {yyjson_get_str(value), yyjson_get_len(value)};
}

std::optional<std::int64_t> whole_number_of(yyjson_val* value) noexcept {
  if (yyjson_is_uint(value)) {
    const auto number = yyjson_get_uint(value);
    if (number > static_cast<std::uint64_t>(exact_max)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (yyjson_is_sint(value)) {
    const auto number = yyjson_get_sint(value);
    if (number < -exact_max) return std::nullopt;
    return number;
  }
  if (!yyjson_is_real(value)) return std::nullopt;
  const double number = yyjson_get_real(value);
  if (std::abs(number) > static_cast<double>(exact_max) || number != std::trunc(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

found_fields find_fields(yyjson_val* object, std::string_view field_facts::*name_in) noexcept {
  found_fields found{};
  yyjson_obj_iter members = yyjson_obj_iter_with(object);
  while (yyjson_val* name = yyjson_obj_iter_next(&members)) {
    const std::string_view text = text_of(name);
    for (std::size_t index = 0; index < field_count; ++index) {
      const std::string_view wanted = fields_of_record[index].*name_in;
      if (wanted.empty() || text != wanted) continue;
      found[index].repeated = found[index].value != nullptr;
      found[index].value = yyjson_obj_iter_get_val(name);
    }
  }
  return found;
}

bool take(field which, yyjson_val* value, decoded_record& out) noexcept {
  switch (which) {
    case lock_id_field: {
      auto id = lock_id::parse(text_of(value));
      if (id) out.id = *id;
      return out.id.has_value();
    }
    case expires_field:
    case acquired_field: {
      const auto number = whole_number_of(value);
      if (number) (which == expires_field ? out.expires_at_ms : out.acquired_at_ms) = *number;
      return number.has_value();
    }
    case key_field: {
      const std::string_view key = text_of(value);
      return !key.empty() && out.key.append(key);
    }
    case fence_field: {
      auto token = fence::parse(text_of(value));
      if (token) out.token = *token;
      return out.token.has_value();
    }
    case field_count: break;
  }
  return false;
}

// Returns whether the field is there, once, and right; else notes the first fault.
bool decode_field(field which, const found_field& found, decoded_record& out) noexcept {
  const field_facts& facts = fields_of_record[which];
  static_text fault;
  if (found.value == nullptr) fault = facts.missing;
  else if (found.repeated) fault = facts.repeated;
  else if (!take(which, found.value, out)) fault = facts.malformed;
  else return true;
  if (out.fault.empty()) out.fault = fault;
  return false;
}

void decode_object(yyjson_val* object, decoded_record& out) noexcept {
  record_form form = record_form::current;
  found_fields found = find_fields(object, &field_facts::name);
  if (found[expires_field].value == nullptr) {
    const found_fields older = find_fields(object, &field_facts::legacy_name);
    if (older[expires_field].value != nullptr) {
      form = record_form::legacy;
      found = older;
    }
  }
  if (!decode_field(expires_field, found[expires_field], out)) return;
  out.form = form;
  decode_field(lock_id_field, found[lock_id_field], out);
  decode_field(acquired_field, found[acquired_field], out);
  decode_field(key_field, found[key_field], out);
  if (form == record_form::current) decode_field(fence_field, found[fence_field], out);
}

// Takes a literal, or digits, off the front of a text.
bool take_literal(std::string_view& rest, std::string_view literal) noexcept {
  if (!rest.starts_with(literal)) return false;
  rest.remove_prefix(literal.size());
  return true;
}

bool take_milliseconds(std::string_view& rest, std::int64_t& out) noexcept {
  constexpr std::size_t digits = 13;  // from 2001 to 2286
  if (rest.size() < digits || rest.front() == '0') return false;
  std::int64_t number = 0;
  for (const char character : rest.substr(0, digits)) {
    if (character < '0' || character > '9') return false;
    number = number * 10 + (character - '0');
  }
  out = number;
  rest.remove_prefix(digits);
  return true;
}

bool is_plain(std::string_view text) noexcept {
  for (const char character : text)
    if (character < 0x20 || character == '"' || character == '\\' || character == 0x7f) return false;
  return true;
}

// The form in which encode_record() and the scripts write a record whose key is plain ASCII: the one that nearly every
// record has, read in a sixth of the time. Anything else is left to the parser, which `out` then has not been touched
// for.
bool decode_own_form(std::string_view rest, decoded_record& out) noexcept {
  constexpr std::string_view end = R"("})";
  constexpr std::size_t tail_bytes = std::string_view{R"(","fence":")"}.size() + fence::digits + end.size();
  std::int64_t expires_at_ms = 0;
  std::int64_t acquired_at_ms = 0;
  if (!take_literal(rest, R"({"lockId":")") || rest.size() < lock_id::length) return false;
  const std::string_view id_text = rest.substr(0, lock_id::length);
  rest.remove_prefix(lock_id::length);
  if (!take_literal(rest, R"(","expiresAtMs":)") || !take_milliseconds(rest, expires_at_ms) ||
      !take_literal(rest, R"(,"acquiredAtMs":)") || !take_milliseconds(rest, acquired_at_ms) ||
      !take_literal(rest, R"(,"key":")") || rest.size() <= tail_bytes)
    return false;
  const std::string_view key = rest.substr(0, rest.size() - tail_bytes);
  rest.remove_prefix(key.size());
  if (!is_plain(key) || key.size() > user_key_max_bytes || !take_literal(rest, R"(","fence":")")) return false;
  const auto token = fence::parse(rest.substr(0, fence::digits));
  if (!token || rest.substr(fence::digits) != end) return false;
  const auto id = lock_id::parse(id_text);
  if (!id) return false;

  out.form = record_form::current;
  out.expires_at_ms = expires_at_ms;
  out.acquired_at_ms = acquired_at_ms;
  out.id = *id;
  out.token = *token;
  out.key.append(key);
  return true;
}

void append_number(record_buffer& out, std::int64_t number) noexcept {
  char digits[20];
  const auto [end, failure] = std::to_chars(digits, digits + sizeof digits, number);
  out.append({digits, end});
}

}  // namespace

void decode_record(std::string_view json, decoded_record& out) noexcept {
  if (json.size() > record_max_bytes) {
    out.fault = "the record is longer than 4096 bytes";
    return;
  }
  if (!decode_own_form(json, out)) parse_record(json, out);
}

void parse_record(std::string_view json, decoded_record& out) noexcept {
  alignas(std::max_align_t) char pool[pool_bytes];
  yyjson_alc allocator;
  yyjson_alc_pool_init(&allocator, pool, sizeof pool);
  // Without the flag for in-place reading, yyjson copies the text and never writes to it.
  auto* text = const_cast<char*>(json.data());
  yyjson_doc* document = yyjson_read_opts(text, json.size(), YYJSON_READ_NOFLAG, &allocator, nullptr);
  yyjson_val* root = yyjson_doc_get_root(document);
  if (root == nullptr) {
    out.fault = "the record is not JSON";
  } else if (!yyjson_is_obj(root)) {
    out.fault = "the record is not a JSON object";
  } else {
    decode_object(root, out);
  }
  yyjson_doc_free(document);
}

std::string_view encode_record(const record_fields& fields, record_buffer& out) noexcept {
  out.clear();
  out.append(R"({"lockId":")");
  out.append(fields.id.view());
  out.append(R"(","expiresAtMs":)");
  append_number(out, fields.expires_at_ms);
  out.append(R"(,"acquiredAtMs":)");
  append_number(out, fields.acquired_at_ms);
  out.append(R"(,"key":")");
  append_json_escaped(out, fields.key);
  out.append(R"(","fence":")");
  out.append(fields.token.to_text());
  out.append(R"("})");
  return out.view();
}

}  // namespace syncguard::protocol

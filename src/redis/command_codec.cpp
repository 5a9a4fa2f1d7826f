#include "redis/command_codec.hpp"

#include <array>
#include <charconv>
#include <optional>

#include <hiredis.h>

#include "protocol/error_map.hpp"
#include "protocol/json_escape.hpp"
#include "protocol/liveness.hpp"
#include "protocol/record.hpp"
#include "syncguard_scripts.hpp"

namespace syncguard::redis {

namespace {

using engine::operation;
using engine::operation_kind;
using engine::outcome;
using engine::verdict;
using protocol::key_space;
using protocol::storage_key_buffer;

// How an operation is written for lua/mutate.lua.
struct shape {
  std::size_t keys;
  std::size_t arguments;
  std::string_view letter;
};

constexpr shape self_test_shape{3, 1, "t"};

constexpr bool needs_escape(std::string_view text) noexcept {
  for (const char character : text)
    if (static_cast<unsigned char>(character) < 0x20 || character == '"' || character == '\\') return true;
  return false;
}

// Whether the script can make the other keys of a lock from its lock key, and its user key, too: nothing is hashed, and
// nothing has to be escaped. The longest of them is the fence key: the prefix twice, and `fence:`.
bool is_plain(std::string_view user_key, const key_space& keys) noexcept {
  constexpr std::size_t fence_name_bytes = 6;
  const std::size_t prefix_bytes = keys.prefix().empty() ? 0 : keys.prefix().size() + 1;
  return prefix_bytes * 2 + fence_name_bytes + user_key.size() <= protocol::storage_key_max_bytes &&
         !needs_escape(user_key);
}

bool has_plain_index(const key_space& keys) noexcept {
  constexpr std::size_t index_name_bytes = 3 + lock_id::length;
  const std::size_t prefix_bytes = keys.prefix().empty() ? 0 : keys.prefix().size() + 1;
  return prefix_bytes + index_name_bytes <= protocol::storage_key_max_bytes;
}

shape shape_of(const operation& item, const key_space& keys, bool plain_index) noexcept {
  switch (item.kind) {
    case operation_kind::acquire:
      return plain_index && is_plain(item.key.view(), keys) ? shape{1, 3, "a"} : shape{3, 4, "A"};
    case operation_kind::release: return plain_index ? shape{1, 1, "r"} : shape{1, 2, "R"};
    case operation_kind::extend: return plain_index ? shape{1, 2, "x"} : shape{1, 3, "X"};
    case operation_kind::clean_up: return {1, 1, "c"};
    default: return {1, 1, "i"};
  }
}

void begin_script(const scripts::script& which, std::size_t keys, std::size_t arguments, resp_writer& out) {
  out.begin(3 + keys + arguments);
  out.add("EVALSHA");
  out.add(which.sha1);
  out.add(static_cast<std::int64_t>(keys));
}

// The first arguments of lua/mutate.lua.
void write_preamble(const key_space& keys, std::size_t operations, bool watched, resp_writer& out) {
  storage_key_buffer prefix;
  prefix.append(keys.prefix());
  if (!keys.prefix().empty()) prefix.append(":");
  out.add(prefix.view());
  char count[24];
  char* end = std::to_chars(count, count + sizeof count - 1, operations).ptr;
  if (watched) *end++ = 'w';
  out.add(std::string_view{count, end});
}
constexpr std::size_t preamble_arguments = 2;

void write_first_key(const operation& item, const key_space& keys, resp_writer& out) {
  storage_key_buffer key;
  const bool by_id = item.kind == operation_kind::release || item.kind == operation_kind::extend ||
                     item.kind == operation_kind::lookup_id;
  out.add(by_id ? keys.index_key(*item.id, key) : keys.lock_key(item.key.view(), key));
}

void write_other_keys(const operation& item, const key_space& keys, resp_writer& out) {
  storage_key_buffer lock_out;
  storage_key_buffer other_out;
  out.add(keys.index_key(*item.id, other_out));
  out.add(keys.fence_key(keys.lock_key(item.key.view(), lock_out), other_out));
}

void write_arguments(const operation& item, std::string_view letter, resp_writer& out) {
  out.add(letter);
  switch (letter.front()) {
    case 'a':
    case 'A':
      out.add(item.id->view());
      out.add(item.ttl_ms);
      if (letter.front() == 'A') {
        protocol::inline_string<protocol::user_key_max_bytes * protocol::json_escape_factor> escaped;
        protocol::append_json_escaped(escaped, item.key.view());
        out.add(escaped.view());
      }
      break;
    case 'x': out.add(item.ttl_ms); break;
    case 'X':
      out.add(item.ttl_ms);
      out.add(item.id->view());
      break;
    case 'R': out.add(item.id->view()); break;
    default: break;
  }
}

// Whether a watched batch must name the lock key besides: the operation begins with another one.
bool hides_lock_key(const operation& item) noexcept {
  return item.kind == operation_kind::extend && !item.key.view().empty();
}

void write_hidden_lock_keys(const engine::batch& what, const key_space& keys, resp_writer& out) {
  storage_key_buffer key;
  for (std::size_t index = 0; index < what.count; ++index)
    if (hides_lock_key(*what.operations[index])) out.add(keys.lock_key(what.operations[index]->key.view(), key));
}

void write_mutations(const engine::batch& what, const key_space& keys, bool watched, resp_writer& out) {
  const bool plain_index = has_plain_index(keys);
  std::array<shape, engine::batch::mutation_max> shapes;
  std::size_t key_count = 0;
  std::size_t argument_count = preamble_arguments;
  for (std::size_t index = 0; index < what.count; ++index) {
    shapes[index] = shape_of(*what.operations[index], keys, plain_index);
    key_count += shapes[index].keys + (watched && hides_lock_key(*what.operations[index]) ? 1 : 0);
    argument_count += shapes[index].arguments;
  }
  begin_script(scripts::mutate, key_count, argument_count, out);
  for (std::size_t index = 0; index < what.count; ++index) {
    write_first_key(*what.operations[index], keys, out);
    if (shapes[index].keys > 1) write_other_keys(*what.operations[index], keys, out);
  }
  if (watched) write_hidden_lock_keys(what, keys, out);
  write_preamble(keys, what.count, watched, out);
  for (std::size_t index = 0; index < what.count; ++index)
    write_arguments(*what.operations[index], shapes[index].letter, out);
}

std::optional<std::int64_t> number_in(std::string_view text) noexcept {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc{} || stopped != end) return std::nullopt;
  return number;
}

std::string_view text_of(const redisReply& reply) noexcept {
  return reply.str != nullptr ? std::string_view{reply.str, reply.len} : std::string_view{};
}

void fail(outcome& out, error why) noexcept {
  out.what = verdict::failed;
  out.failure = std::move(why);
}

void fail_with_nonsense(outcome& out, std::string_view seen) noexcept {
  error why{error_code::internal, "the server's answer makes no sense"};
  why.with_context({}, {}, seen);
  fail(out, std::move(why));
}

void fail_with_reply(outcome& out, std::string_view text) noexcept {
  out.demoted = protocol::reply_code_word(text) == "READONLY";
  fail(out, error_from_reply(text));
}

std::string_view take_line(std::string_view& rest) noexcept {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return line;
}

}  // namespace

error error_from_reply(std::string_view text) noexcept {
  const auto with_cause = [&](error what) {
    what.with_context({}, {}, text);
    return what;
  };
  if (text.starts_with("CORRUPT"))
    return with_cause({error_code::internal, "what is stored at the lock's key cannot be read, and does not expire"});
  if (text.starts_with("FENCE"))
    return with_cause({error_code::internal, "the fence counter of this key is exhausted"});
  switch (protocol::classify_error(text)) {
    case error_code::auth_failed:
      return with_cause({error_code::auth_failed, "the server does not allow this: credentials or rights"});
    case error_code::invalid_argument:
      return with_cause({error_code::invalid_argument, "the server refused the input"});
    case error_code::rate_limited: return with_cause({error_code::rate_limited, "the server is out of memory"});
    case error_code::service_unavailable:
      return with_cause({error_code::service_unavailable, "the server cannot serve now"});
    case error_code::network_timeout: return with_cause({error_code::network_timeout, "the server timed out"});
    default: return with_cause({error_code::internal, "the server answered with an error"});
  }
}

void write_batch(const engine::batch& what, const key_space& keys, resp_writer& out, bool watched) {
  if (what.kind == engine::travel_class::mutation) return write_mutations(what, keys, watched, out);
  if (what.kind == engine::travel_class::key_read) {
    out.begin(1 + what.count);
    out.add("MGET");
  } else {
    begin_script(scripts::lookup, what.count, what.count, out);
  }
  for (std::size_t index = 0; index < what.count; ++index) write_first_key(*what.operations[index], keys, out);
  if (what.kind == engine::travel_class::key_read) return;
  for (std::size_t index = 0; index < what.count; ++index) out.add(what.operations[index]->id->view());
}

void write_self_test(const key_space& keys, resp_writer& out) {
  // Never stored: these keys are only asked about.
  storage_key_buffer lock_out;
  storage_key_buffer other_out;
  begin_script(scripts::mutate, self_test_shape.keys, preamble_arguments + self_test_shape.arguments, out);
  const std::string_view lock_key = keys.lock_key("syncguard self-test", lock_out);
  out.add(lock_key);
  out.add(keys.index_key(lock_id::generate(), other_out));
  out.add(keys.fence_key(lock_key, other_out));
  write_preamble(keys, 1, false, out);
  out.add(self_test_shape.letter);
}

std::optional<error> read_self_test(const redisReply& reply) noexcept {
  std::string_view text = text_of(reply);
  if (reply.type == REDIS_REPLY_ERROR) return error_from_reply(text);
  take_line(text);
  if (text == "T") return std::nullopt;
  if (text.starts_with('!')) return error_from_reply(text.substr(1));
  return error{error_code::internal, "the server's answer to the self-test makes no sense"};
}

reply_reader::reply_reader(const engine::batch& asked, const redisReply& reply, std::int64_t server_now_ms) noexcept
    : kind_(asked.kind), reply_(reply), now_ms_(asked.kind == engine::travel_class::key_read ? server_now_ms : 0) {
  if (kind_ == engine::travel_class::mutation && reply.type == REDIS_REPLY_STRING) {
    rest_ = text_of(reply);
    now_ms_ = number_in(take_line(rest_)).value_or(0);
  } else if (kind_ == engine::travel_class::id_read && reply.type == REDIS_REPLY_ARRAY && reply.elements > 0) {
    now_ms_ = number_in(text_of(*reply.element[0])).value_or(0);
  }
}

void reply_reader::read(std::size_t index, const operation& asked, outcome& out) {
  if (reply_.type == REDIS_REPLY_ERROR) return fail_with_reply(out, text_of(reply_));
  if (kind_ == engine::travel_class::mutation) {
    out.server_now_ms = now_ms_;
    return read_status(take_line(rest_), asked, out);
  }
  const std::size_t at = index + (kind_ == engine::travel_class::id_read ? 1 : 0);
  const bool there = reply_.type == REDIS_REPLY_ARRAY && at < reply_.elements;
  if (!there || now_ms_ <= 0) return fail_with_nonsense(out, "");
  read_record(reply_.element[at], asked, out);
}

void reply_reader::read_status(std::string_view status, const operation& asked, outcome& out) const noexcept {
  if (status.empty()) return fail_with_nonsense(out, status);
  const std::string_view rest = status.substr(1);
  const auto expiry = [&](std::string_view digits, verdict what) {
    const auto number = number_in(digits);
    if (!number) return fail_with_nonsense(out, status);
    out.what = what;
    out.expires_at_ms = *number;
  };
  switch (status.front()) {
    case 'A': {
      const auto token = fence::parse(rest.substr(0, fence::digits));
      if (!token || asked.kind != operation_kind::acquire) return fail_with_nonsense(out, status);
      out.token = *token;
      return expiry(rest.substr(fence::digits), verdict::acquired);
    }
    case 'L': return expiry(rest, verdict::contended);
    case 'l': {
      const auto token = fence::parse(rest.substr(0, fence::digits));
      if (!token) return fail_with_nonsense(out, status);
      if (token->number() != 0) out.token = *token;
      return expiry(rest.substr(fence::digits), verdict::contended);
    }
    case 'X': return expiry(rest, verdict::extended);
    case 'C': out.what = verdict::corrupt; return;
    case 'R': out.what = verdict::released; return;
    case 'O': out.what = verdict::not_owner; return;
    case 'N': out.what = verdict::absent; return;
    case 'E': out.what = verdict::expired; return;
    case 'H': out.what = verdict::held; return;
    case 'F': out.what = verdict::free; return;
    case '!': return fail_with_reply(out, rest);
    default: return fail_with_nonsense(out, status);
  }
}

void reply_reader::read_record(const redisReply* record, const operation& asked, outcome& out) const noexcept {
  if (record == nullptr) return fail_with_nonsense(out, "");
  if (record->type == REDIS_REPLY_NIL) {
    out.what = verdict::absent;
    return;
  }
  if (record->type == REDIS_REPLY_ERROR) return fail_with_reply(out, text_of(*record));
  if (record->type != REDIS_REPLY_STRING) return fail_with_nonsense(out, "");

  protocol::decode_record(text_of(*record), out.record);
  if (out.record.form == protocol::record_form::unreadable) {
    if (asked.kind == operation_kind::is_locked) {
      out.what = verdict::unreadable;
      return;
    }
  } else if (!protocol::is_live(out.record.expires_at_ms, now_ms_)) {
    out.what = verdict::expired;
    out.cleanable = protocol::is_cleanable(out.record.expires_at_ms, now_ms_);
    return;
  } else if (asked.kind == operation_kind::is_locked) {
    out.what = verdict::held;
    return;
  }
  if (!out.record.fault.empty()) {
    error why{error_code::internal, "what is stored at the lock's key cannot be read"};
    why.with_context({}, {}, out.record.fault);
    return fail(out, std::move(why));
  }
  const bool others = asked.kind == operation_kind::lookup_id && out.record.id != asked.id;
  out.what = others ? verdict::not_owner : verdict::found;
}

}  // namespace syncguard::redis

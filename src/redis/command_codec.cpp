#include "redis/command_codec.hpp"

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

// How many keys and arguments of the script an operation takes.
struct shape {
  std::size_t keys;
  std::size_t arguments;
  std::string_view letter;
};

constexpr shape shape_of(operation_kind kind) noexcept {
  switch (kind) {
    case operation_kind::acquire: return {3, 4, "a"};
    case operation_kind::release: return {1, 2, "r"};
    case operation_kind::extend: return {1, 3, "x"};
    case operation_kind::clean_up: return {1, 1, "c"};
    default: return {1, 1, "i"};
  }
}

constexpr shape self_test_shape{3, 1, "t"};

void begin_script(const scripts::script& which, std::size_t keys, std::size_t arguments, resp_writer& out) {
  out.begin(3 + keys + arguments);
  out.add("EVALSHA");
  out.add(which.sha1);
  out.add(static_cast<std::int64_t>(keys));
}

// What stands in front of a lock id in an index key; nothing where such keys are hashed.
std::string_view index_prefix(const key_space& keys, storage_key_buffer& out) {
  out.clear();
  out.append(keys.prefix());
  if (!keys.prefix().empty()) out.append(":");
  const bool fits = out.append("id:") && out.size() + lock_id::length <= storage_key_buffer::capacity;
  return fits ? out.view() : std::string_view{};
}

void write_keys(const operation& item, const key_space& keys, resp_writer& out) {
  storage_key_buffer first;
  storage_key_buffer second;
  switch (item.kind) {
    case operation_kind::acquire:
      out.add(keys.lock_key(item.key.view(), first));
      out.add(keys.index_key(*item.id, second));
      out.add(keys.fence_key(first.view(), second));
      break;
    case operation_kind::release:
    case operation_kind::extend:
    case operation_kind::lookup_id: out.add(keys.index_key(*item.id, first)); break;
    default: out.add(keys.lock_key(item.key.view(), first));
  }
}

void write_arguments(const operation& item, resp_writer& out) {
  out.add(shape_of(item.kind).letter);
  if (item.kind == operation_kind::clean_up || item.kind == operation_kind::inspect) return;
  out.add(item.id->view());
  if (item.kind == operation_kind::release) return;
  out.add(item.ttl_ms);
  if (item.kind == operation_kind::extend) return;
  protocol::inline_string<protocol::user_key_max_bytes * protocol::json_escape_factor> escaped;
  protocol::append_json_escaped(escaped, item.key.view());
  out.add(escaped.view());
}

void write_mutations(const engine::batch& what, const key_space& keys, resp_writer& out) {
  std::size_t key_count = 0;
  std::size_t argument_count = 1;
  for (std::size_t index = 0; index < what.count; ++index) {
    const shape each = shape_of(what.operations[index]->kind);
    key_count += each.keys;
    argument_count += each.arguments;
  }
  begin_script(scripts::mutate, key_count, argument_count, out);
  for (std::size_t index = 0; index < what.count; ++index) write_keys(*what.operations[index], keys, out);
  storage_key_buffer prefix;
  out.add(index_prefix(keys, prefix));
  for (std::size_t index = 0; index < what.count; ++index) write_arguments(*what.operations[index], out);
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
  if (text.starts_with("FENCE")) return with_cause({error_code::internal, "the fence counter of this key is exhausted"});
  switch (protocol::classify_error(text)) {
    case error_code::auth_failed:
      return with_cause({error_code::auth_failed, "the server does not allow this: credentials or rights"});
    case error_code::invalid_argument: return with_cause({error_code::invalid_argument, "the server refused the input"});
    case error_code::rate_limited: return with_cause({error_code::rate_limited, "the server is out of memory"});
    case error_code::service_unavailable:
      return with_cause({error_code::service_unavailable, "the server cannot serve now"});
    case error_code::network_timeout: return with_cause({error_code::network_timeout, "the server timed out"});
    default: return with_cause({error_code::internal, "the server answered with an error"});
  }
}

void write_batch(const engine::batch& what, const key_space& keys, resp_writer& out) {
  if (what.kind == engine::travel_class::mutation) return write_mutations(what, keys, out);
  if (what.kind == engine::travel_class::key_read) {
    out.begin(1 + what.count);
    out.add("MGET");
  } else {
    begin_script(scripts::lookup, what.count, what.count, out);
  }
  for (std::size_t index = 0; index < what.count; ++index) write_keys(*what.operations[index], keys, out);
  if (what.kind == engine::travel_class::key_read) return;
  for (std::size_t index = 0; index < what.count; ++index) out.add(what.operations[index]->id->view());
}

void write_self_test(const key_space& keys, resp_writer& out) {
  // Never stored: these keys are only asked about.
  storage_key_buffer lock_out;
  storage_key_buffer other_out;
  begin_script(scripts::mutate, self_test_shape.keys, 1 + self_test_shape.arguments, out);
  const std::string_view lock_key = keys.lock_key("syncguard self-test", lock_out);
  out.add(lock_key);
  out.add(keys.index_key(lock_id::generate(), other_out));
  out.add(keys.fence_key(lock_key, other_out));
  out.add(index_prefix(keys, other_out));
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
    : kind_(asked.kind), reply_(reply), now_ms_(server_now_ms) {
  if (kind_ == engine::travel_class::mutation && reply.type == REDIS_REPLY_STRING) {
    rest_ = text_of(reply);
    now_ms_ = number_in(take_line(rest_)).value_or(0);
  } else if (kind_ == engine::travel_class::id_read && reply.type == REDIS_REPLY_ARRAY && reply.elements > 0) {
    now_ms_ = number_in(text_of(*reply.element[0])).value_or(0);
  }
}

void reply_reader::read(std::size_t index, const operation& asked, outcome& out) {
  if (reply_.type == REDIS_REPLY_ERROR) return fail_with_reply(out, text_of(reply_));
  if (kind_ == engine::travel_class::mutation) return read_status(take_line(rest_), asked, out);
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

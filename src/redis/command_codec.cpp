#include "redis/command_codec.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <hiredis.h>

#include "protocol/error_map.hpp"
#include "protocol/inline_string.hpp"
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
  char letter;
  std::size_t keys = 1;
  bool has_id = false;
  bool has_ttl = false;
  bool has_user_key = false;
};

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
      if (plain_index && !item.maybe_applied && !item.careful && is_plain(item.key.view(), keys))
        return {'a', 1, true, true};
      return {'A', 3, true, true, true};
    case operation_kind::release: return plain_index ? shape{'r'} : shape{'R', 1, true};
    case operation_kind::extend: return plain_index ? shape{'x', 1, false, true} : shape{'X', 1, true, true};
    case operation_kind::clean_up: return {'c'};
    default: return {'i'};
  }
}

void begin_script(const scripts::script& which, std::size_t keys, std::size_t arguments, resp_writer& out) {
  out.begin(3 + keys + arguments);
  out.add("EVALSHA");
  out.add(which.sha1);
  out.add(static_cast<std::int64_t>(keys));
}

// The arguments of lua/mutate.lua: see there.
class mutation_arguments {
 public:
  void add(const operation& item, const shape& how) noexcept {
    letters_.append({&how.letter, 1});
    if (how.has_id) ids_.append(item.id->view());
    const char ttl = how.has_ttl ? name_of_ttl(item.ttl_ms) : '0';
    ttl_names_.append({&ttl, 1});
    if (how.has_user_key) user_keys_[user_key_count_++] = item.key.view();
  }

  // Only asks, and has neither a lock id nor a time to live.
  void add_self_test() noexcept {
    letters_.append("t");
    ttl_names_.append("0");
  }

  std::size_t count() const noexcept { return 5 + ttl_count_ + user_key_count_; }

  void write(const key_space& keys, bool watched, resp_writer& out) const {
    storage_key_buffer prefix;
    prefix.append(keys.prefix());
    if (!keys.prefix().empty()) prefix.append(":");
    out.add(prefix.view());
    char ttl_count[24];
    char* end = std::to_chars(ttl_count, ttl_count + sizeof ttl_count - 1, ttl_count_).ptr;
    if (watched) *end++ = 'w';
    out.add(std::string_view{ttl_count, end});
    out.add(letters_.view());
    out.add(ids_.view());
    out.add(ttl_names_.view());
    for (std::size_t at = 0; at < ttl_count_; ++at) out.add(ttls_[at]);
    for (std::size_t at = 0; at < user_key_count_; ++at) {
      protocol::inline_string<protocol::user_key_max_bytes * protocol::json_escape_factor> escaped;
      protocol::append_json_escaped(escaped, user_keys_[at]);
      out.add(escaped.view());
    }
  }

 private:
  static constexpr std::size_t operations_max = engine::batch::mutation_max;

  char name_of_ttl(std::int64_t ttl_ms) noexcept {
    std::size_t at = 0;
    while (at < ttl_count_ && ttls_[at] != ttl_ms) ++at;
    if (at == ttl_count_) ttls_[ttl_count_++] = ttl_ms;
    return static_cast<char>('1' + at);
  }

  protocol::inline_string<operations_max> letters_;
  protocol::inline_string<operations_max * lock_id::length> ids_;
  protocol::inline_string<operations_max> ttl_names_;
  std::array<std::int64_t, operations_max> ttls_;
  std::size_t ttl_count_ = 0;
  std::array<std::string_view, operations_max> user_keys_;
  std::size_t user_key_count_ = 0;
};

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
  std::array<std::size_t, engine::batch::mutation_max> keys_of;
  mutation_arguments arguments;
  std::size_t key_count = 0;
  for (std::size_t index = 0; index < what.count; ++index) {
    const operation& item = *what.operations[index];
    const shape how = shape_of(item, keys, plain_index);
    arguments.add(item, how);
    keys_of[index] = how.keys;
    key_count += how.keys + (watched && hides_lock_key(item) ? 1 : 0);
  }
  begin_script(scripts::mutate, key_count, arguments.count(), out);
  for (std::size_t index = 0; index < what.count; ++index) {
    write_first_key(*what.operations[index], keys, out);
    if (keys_of[index] > 1) write_other_keys(*what.operations[index], keys, out);
  }
  if (watched) write_hidden_lock_keys(what, keys, out);
  arguments.write(keys, watched, out);
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

std::string_view take(std::string_view& rest, std::size_t bytes) noexcept {
  const std::string_view taken = rest.substr(0, bytes);
  rest.remove_prefix(taken.size());
  return taken;
}

// What lua/mutate.lua says of one operation: a letter, and what comes with it.
struct status {
  char letter = 0;
  std::string_view fence;
  std::string_view expiry;
  std::string_view failure;
};

constexpr std::size_t time_digits = 13;

status take_status(std::string_view& rest) noexcept {
  status next;
  if (rest.empty()) return next;
  next.letter = take(rest, 1).front();
  switch (next.letter) {
    case 'A':
    case 'l': next.fence = take(rest, fence::digits); [[fallthrough]];
    case 'L':
    case 'X': next.expiry = take(rest, time_digits); break;
    case '!':
      next.failure = take(rest, std::min(rest.size(), rest.find('\n')));
      take(rest, 1);
      break;
    default: break;
  }
  return next;
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
  mutation_arguments arguments;
  arguments.add_self_test();
  begin_script(scripts::mutate, 3, arguments.count(), out);
  const std::string_view lock_key = keys.lock_key("syncguard self-test", lock_out);
  out.add(lock_key);
  out.add(keys.index_key(lock_id::generate(), other_out));
  out.add(keys.fence_key(lock_key, other_out));
  arguments.write(keys, false, out);
}

std::optional<error> read_self_test(const redisReply& reply) noexcept {
  std::string_view text = text_of(reply);
  if (reply.type == REDIS_REPLY_ERROR) return error_from_reply(text);
  take(text, time_digits);
  const status said = take_status(text);
  if (said.letter == 'T' && text.empty()) return std::nullopt;
  if (said.letter == '!') return error_from_reply(said.failure);
  return error{error_code::internal, "the server's answer to the self-test makes no sense"};
}

reply_reader::reply_reader(const engine::batch& asked, const redisReply& reply, std::int64_t server_now_ms) noexcept
    : kind_(asked.kind), reply_(reply), now_ms_(asked.kind == engine::travel_class::key_read ? server_now_ms : 0) {
  if (kind_ == engine::travel_class::mutation && reply.type == REDIS_REPLY_STRING) {
    rest_ = text_of(reply);
    now_ms_ = number_in(take(rest_, time_digits)).value_or(0);
  } else if (kind_ == engine::travel_class::id_read && reply.type == REDIS_REPLY_ARRAY && reply.elements > 0) {
    now_ms_ = number_in(text_of(*reply.element[0])).value_or(0);
  }
}

void reply_reader::read(std::size_t index, const operation& asked, outcome& out) {
  if (reply_.type == REDIS_REPLY_ERROR) return fail_with_reply(out, text_of(reply_));
  if (kind_ == engine::travel_class::mutation) {
    out.server_now_ms = now_ms_;
    return read_status(asked, out);
  }
  const std::size_t at = index + (kind_ == engine::travel_class::id_read ? 1 : 0);
  const bool there = reply_.type == REDIS_REPLY_ARRAY && at < reply_.elements;
  if (!there || now_ms_ <= 0) return fail_with_nonsense(out, "");
  read_record(reply_.element[at], asked, out);
}

void reply_reader::read_status(const operation& asked, outcome& out) noexcept {
  const std::string_view here = rest_;
  const status said = take_status(rest_);
  const auto fail_here = [&] { fail_with_nonsense(out, here.substr(0, here.size() - rest_.size())); };
  if (!said.fence.empty()) {
    const auto token = fence::parse(said.fence);
    if (!token) return fail_here();
    if (said.letter == 'A' || token->number() != 0) out.token = *token;
  }
  const auto expiry = number_in(said.expiry);
  const auto until = [&](verdict what) {
    out.what = what;
    out.expires_at_ms = *expiry;
  };
  switch (said.letter) {
    case 'A':
      return expiry && out.token && asked.kind == operation_kind::acquire ? until(verdict::acquired) : fail_here();
    case 'X': return expiry ? until(verdict::extended) : fail_here();
    case 'L':
    case 'l':
      if (expiry) return until(verdict::contended);
      if (said.expiry.size() < time_digits || asked.kind != operation_kind::acquire || asked.careful)
        return fail_here();
      out.what = verdict::unreadable;
      return;
    case 'C': out.what = verdict::corrupt; return;
    case 'R': out.what = verdict::released; return;
    case 'O': out.what = verdict::not_owner; return;
    case 'N': out.what = verdict::absent; return;
    case 'E': out.what = verdict::expired; return;
    case 'H': out.what = verdict::held; return;
    case 'F': out.what = verdict::free; return;
    case '!': return fail_with_reply(out, said.failure);
    default: return fail_here();
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

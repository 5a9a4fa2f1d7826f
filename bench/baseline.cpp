#include "baseline.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include <hiredis.h>

#include <async.h>

#include <adapters/libuv.h>

#include "protocol/liveness.hpp"
#include "protocol/record.hpp"
#include "protocol/user_key.hpp"
#include "support/reference/reference.hpp"

namespace syncguard::bench {

namespace {

using namespace syncguard::protocol;
using std::chrono::milliseconds;

static_assert(liveness_tolerance_ms == 1000);
constexpr std::string_view tolerance = "1000";

constexpr const char* script_names[] = {"acquire", "release", "extend", "lookup", "lookup_key"};

// A number as an argument of a command.
class decimal {
 public:
  explicit decimal(std::int64_t number) noexcept
      : bytes_(static_cast<std::size_t>(std::to_chars(text_.data(), text_.data() + text_.size(), number).ptr -
                                        text_.data())) {}

  operator std::string_view() const noexcept { return {text_.data(), bytes_}; }

 private:
  std::array<char, 20> text_;
  std::size_t bytes_;
};

bool is_integer(const redisReply& reply) { return reply.type == REDIS_REPLY_INTEGER; }

bool is_array_of(const redisReply& reply, std::size_t size) {
  return reply.type == REDIS_REPLY_ARRAY && reply.elements == size;
}

server_time time_of(const redisReply& reply) { return server_time{milliseconds{reply.integer}}; }

error failure(std::string_view cause) {
  error what{error_code::internal, "the baseline's operation failed"};
  what.with_context({}, {}, cause);
  return what;
}

error failure(const redisReply& reply) {
  return failure(reply.type == REDIS_REPLY_ERROR ? std::string_view{reply.str, reply.len}
                                                 : std::string_view{"an answer that makes no sense"});
}

result<std::optional<grant>> read_grant(const redisReply& reply, const lock_id& id) {
  if (is_integer(reply) && reply.integer == 0) return std::optional<grant>{};
  if (!is_array_of(reply, 3) || !is_integer(*reply.element[2])) return failure(reply);
  const auto token = fence::parse({reply.element[1]->str, reply.element[1]->len});
  if (!token) return failure(reply);
  return std::optional{grant{id, *token, time_of(*reply.element[2])}};
}

result<bool> read_release(const redisReply& reply) {
  if (!is_integer(reply)) return failure(reply);
  return reply.integer == 1;
}

result<std::optional<server_time>> read_extension(const redisReply& reply) {
  if (is_integer(reply)) return std::optional<server_time>{};
  if (!is_array_of(reply, 2) || !is_integer(*reply.element[1])) return failure(reply);
  return std::optional{time_of(*reply.element[1])};
}

result<std::optional<lock_info>> read_info(const redisReply& reply) {
  if (reply.type == REDIS_REPLY_NIL) return std::optional<lock_info>{};
  if (reply.type != REDIS_REPLY_STRING) return failure(reply);
  decoded_record record;
  decode_record({reply.str, reply.len}, record);
  if (!record.fault.empty() || !record.id || !record.token) return failure("an unreadable record");
  const auto key = hash_key(record.key.view());
  const auto id = hash_key(*record.id);
  if (!key || !id) return failure("an unreadable record");
  return std::optional{lock_info{*key, *id, server_time{milliseconds{record.expires_at_ms}},
                                 server_time{milliseconds{record.acquired_at_ms}}, *record.token}};
}

// hiredis frees the context after either.
void on_disconnect(const redisAsyncContext* context, int) {
  *static_cast<redisAsyncContext**>(context->data) = nullptr;
}
void on_connect(const redisAsyncContext* context, int status) {
  if (status != REDIS_OK) on_disconnect(context, status);
}

}  // namespace

baseline::baseline(uv_loop_t* loop) : loop_(loop), keys_(*key_space::make("syncguard")) {}

baseline::~baseline() {
  closing_ = true;
  if (context_ != nullptr) redisAsyncFree(context_);
}

bool baseline::connect(const std::string& socket_path) {
  context_ = redisAsyncConnectUnix(socket_path.c_str());
  if (context_ == nullptr || context_->err != 0) {
    last_error_ = context_ != nullptr ? context_->errstr : "out of memory";
    return false;
  }
  context_->data = &context_;
  redisAsyncSetConnectCallback(context_, on_connect);
  redisAsyncSetDisconnectCallback(context_, on_disconnect);
  if (redisLibuvAttach(context_, loop_) != REDIS_OK) {
    last_error_ = "the connection could not be attached to the loop";
    return false;
  }
  return load_scripts();
}

bool baseline::load_scripts() {
  for (std::size_t which = 0; which < scripts; ++which) {
    const auto text = testing::reference::load_script(script_names[which]);
    if (!text) {
      last_error_ = std::string{script_names[which]} + ".lua of tests/support/reference cannot be read";
      return false;
    }
    redisAsyncCommand(context_, on_loaded, &sha1s_[which], "SCRIPT LOAD %b", text->data(), text->size());
  }
  while (context_ != nullptr && sha1s_[scripts - 1].empty()) uv_run(loop_, UV_RUN_ONCE);
  for (const std::string& sha1 : sha1s_) {
    if (sha1.size() == 40) continue;
    last_error_ = sha1.empty() ? "the connection was refused or lost" : sha1;
    return false;
  }
  return true;
}

void baseline::on_loaded(redisAsyncContext*, void* reply, void* sha1) {
  if (reply == nullptr) return;
  const auto& answer = *static_cast<redisReply*>(reply);
  static_cast<std::string*>(sha1)->assign(answer.str, answer.len);
}

void baseline::acquire(std::string_view key, milliseconds ttl, callback<result<std::optional<grant>>> done) {
  user_key_buffer key_out;
  storage_key_buffer lock_out;
  storage_key_buffer index_out;
  storage_key_buffer fence_out;
  const auto user_key = normalize_user_key(key, key_out);
  if (!user_key) return done(user_key.error());
  const lock_id id = lock_id::generate();
  const std::string_view lock_key = keys_.lock_key(*user_key, lock_out);
  const std::array keys{lock_key, keys_.index_key(id, index_out), keys_.fence_key(lock_key, fence_out)};
  const decimal ttl_ms{ttl.count()};
  const std::array<std::string_view, 5> arguments{id, ttl_ms, tolerance, lock_key, *user_key};
  send(acquire_script, keys, arguments, std::move(done), id);
}

void baseline::release(std::string_view id, callback<result<bool>> done) {
  const auto checked = lock_id::parse(id);
  if (!checked) return done(checked.error());
  storage_key_buffer out;
  const std::array keys{keys_.index_key(*checked, out)};
  const std::array arguments{id, tolerance};
  send(release_script, keys, arguments, std::move(done));
}

void baseline::extend(std::string_view id, milliseconds ttl, callback<result<std::optional<server_time>>> done) {
  const auto checked = lock_id::parse(id);
  if (!checked) return done(checked.error());
  storage_key_buffer out;
  const std::array keys{keys_.index_key(*checked, out)};
  const decimal ttl_ms{ttl.count()};
  const std::array<std::string_view, 3> arguments{id, tolerance, ttl_ms};
  send(extend_script, keys, arguments, std::move(done));
}

void baseline::lookup(std::string_view key, callback<result<std::optional<lock_info>>> done) {
  user_key_buffer key_out;
  const auto user_key = normalize_user_key(key, key_out);
  if (!user_key) return done(user_key.error());
  storage_key_buffer out;
  const std::array keys{keys_.lock_key(*user_key, out)};
  const std::array arguments{tolerance};
  send(lookup_key_script, keys, arguments, std::move(done));
}

void baseline::lookup_by_id(std::string_view id, callback<result<std::optional<lock_info>>> done) {
  const auto checked = lock_id::parse(id);
  if (!checked) return done(checked.error());
  storage_key_buffer out;
  const std::array keys{keys_.index_key(*checked, out)};
  const std::array arguments{id, tolerance};
  send(lookup_script, keys, arguments, std::move(done));
}

template <class Done>
void baseline::send(script which, std::span<const std::string_view> keys, std::span<const std::string_view> arguments,
                    Done done, const std::optional<lock_id>& id) {
  if (context_ == nullptr) return done(failure("not connected"));
  constexpr std::size_t words_max = 11;
  std::array<const char*, words_max> texts;
  std::array<std::size_t, words_max> lengths;
  std::size_t words = 0;
  const auto add = [&](std::string_view word) {
    texts[words] = word.data();
    lengths[words++] = word.size();
  };
  add("EVALSHA");
  add(sha1s_[which]);
  add(keys.size() == 1 ? "1" : "3");
  for (const auto key : keys) add(key);
  for (const auto argument : arguments) add(argument);

  pending* operation = take();
  operation->id = id;
  operation->done = std::move(done);
  redisAsyncCommandArgv(context_, on_reply, operation, static_cast<int>(words), texts.data(), lengths.data());
}

baseline::pending* baseline::take() {
  if (free_.empty()) {
    free_.push_back(&slots_.emplace_back());
    free_.back()->owner = this;
  }
  pending* operation = free_.back();
  free_.pop_back();
  return operation;
}

void baseline::on_reply(redisAsyncContext* context, void* reply, void* operation) {
  pending& over = *static_cast<pending*>(operation);
  if (over.owner->closing_) return;
  auto done = std::exchange(over.done, std::monostate{});
  const auto id = over.id;
  over.owner->free_.push_back(&over);
  const auto* answer = static_cast<const redisReply*>(reply);
  const auto deliver = [&](auto& to, auto read) {
    if (answer == nullptr) to(failure(context->errstr));
    else to(read(*answer));
  };
  if (auto* to = std::get_if<acquired>(&done))
    deliver(*to, [&](const redisReply& got) { return read_grant(got, *id); });
  else if (auto* to_release = std::get_if<released>(&done)) deliver(*to_release, read_release);
  else if (auto* to_extend = std::get_if<extended>(&done)) deliver(*to_extend, read_extension);
  else if (auto* to_find = std::get_if<found>(&done)) deliver(*to_find, read_info);
}

}  // namespace syncguard::bench

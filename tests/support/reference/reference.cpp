#include "support/reference/reference.hpp"

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <hiredis.h>

#include "protocol/storage_key.hpp"

namespace syncguard::testing::reference {

namespace {

constexpr std::string_view prefix = "syncguard";
constexpr std::int64_t tolerance_ms = 1000;
constexpr timeval patience{.tv_sec = 10, .tv_usec = 0};

std::string storage_key(std::string_view key) {
  protocol::storage_key_buffer out;
  const auto made = protocol::make_storage_key(prefix, key, out);
  return made ? std::string{*made} : std::string{};  // never empty: this prefix leaves room for every key
}

std::string index_key(std::string_view lock_id) { return storage_key("id:" + std::string{lock_id}); }

// A number's field of a record. Inside a JSON string every quote is escaped, so the name cannot be part of a value.
std::optional<std::int64_t> number_field(std::string_view json, std::string_view name) {
  const std::string quoted = '"' + std::string{name} + '"';
  const std::size_t found = json.find(quoted);
  if (found == std::string_view::npos) return std::nullopt;
  const std::size_t digits = json.find_first_not_of(" \t\r\n:", found + quoted.size());
  if (digits == std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  const auto [stopped, failure] = std::from_chars(json.data() + digits, json.data() + json.size(), number);
  return failure == std::errc{} ? std::optional{number} : std::nullopt;
}

std::string folder() {
  if (const char* given = std::getenv("SYNCGUARD_REFERENCE")) return given;
#ifdef SYNCGUARD_REFERENCE_FOLDER
  return SYNCGUARD_REFERENCE_FOLDER;
#else
  return ".";
#endif
}

}  // namespace

std::optional<std::string> load_script(std::string_view name) {
  std::ifstream file{folder() + '/' + std::string{name} + ".lua", std::ios::binary};
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>{file}, {}};
}

// A reply, or none.
class reference_client::answer {
 public:
  explicit answer(redisReply* reply) : reply_(reply) {}

  bool is(int type) const { return reply_ != nullptr && reply_->type == type; }
  std::string_view text() const { return {reply_->str, reply_->len}; }
  std::int64_t integer() const { return reply_->integer; }

  bool is_array_of(std::size_t size) const { return is(REDIS_REPLY_ARRAY) && reply_->elements == size; }
  std::string_view text(std::size_t at) const {
    const redisReply* element = reply_->element[at];
    return element->str != nullptr ? std::string_view{element->str, element->len} : std::string_view{};
  }
  std::int64_t integer(std::size_t at) const { return reply_->element[at]->integer; }

 private:
  struct deleter {
    void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
  };

  std::unique_ptr<redisReply, deleter> reply_;
};

void reference_client::context_deleter::operator()(redisContext* context) const noexcept { redisFree(context); }

reference_client::reference_client() = default;
reference_client::~reference_client() = default;

bool reference_client::connect(const std::string& socket_path) {
  context_.reset(redisConnectUnixWithTimeout(socket_path.c_str(), patience));
  if (context_ == nullptr || context_->err != 0) {
    last_error_ = context_ != nullptr ? context_->errstr : "out of memory";
    context_.reset();
    return false;
  }
  redisSetTimeout(context_.get(), patience);
  return load("acquire", acquire_) && load("release", release_) && load("extend", extend_) && load("lookup", lookup_);
}

std::optional<grant> reference_client::acquire(std::string_view key, std::string_view lock_id, std::int64_t ttl_ms) {
  const std::string lock_key = storage_key(key);
  const answer got =
      run(acquire_, {lock_key, index_key(lock_id), storage_key("fence:" + lock_key)},
          {std::string{lock_id}, std::to_string(ttl_ms), std::to_string(tolerance_ms), lock_key, std::string{key}});
  if (got.is_array_of(3)) return grant{std::string{got.text(1)}, got.integer(2)};
  if (!got.is(REDIS_REPLY_INTEGER)) complain(got, "acquire");
  return std::nullopt;
}

int reference_client::release(std::string_view lock_id) {
  const answer got = run(release_, {index_key(lock_id)}, {std::string{lock_id}, std::to_string(tolerance_ms)});
  if (got.is(REDIS_REPLY_INTEGER)) return static_cast<int>(got.integer());
  complain(got, "release");
  return failed;
}

extension reference_client::extend(std::string_view lock_id, std::int64_t ttl_ms) {
  const answer got =
      run(extend_, {index_key(lock_id)}, {std::string{lock_id}, std::to_string(tolerance_ms), std::to_string(ttl_ms)});
  if (got.is_array_of(2)) return {static_cast<int>(got.integer(0)), got.integer(1)};
  if (got.is(REDIS_REPLY_INTEGER)) return {static_cast<int>(got.integer()), 0};
  complain(got, "extend");
  return {};
}

std::optional<std::string> reference_client::lookup_by_id(std::string_view lock_id) {
  const answer got = run(lookup_, {index_key(lock_id)}, {std::string{lock_id}, std::to_string(tolerance_ms)});
  if (got.is(REDIS_REPLY_STRING)) return std::string{got.text()};
  if (!got.is(REDIS_REPLY_NIL)) complain(got, "lookup by id");
  return std::nullopt;
}

std::optional<std::string> reference_client::lookup_by_key(std::string_view key) {
  const answer got = command({"GET", storage_key(key)});
  if (got.is(REDIS_REPLY_NIL)) return std::nullopt;
  const answer time = got.is(REDIS_REPLY_STRING) ? command({"TIME"}) : answer{nullptr};
  if (!time.is_array_of(2)) {
    complain(got.is(REDIS_REPLY_STRING) ? time : got, "lookup by key");
    return std::nullopt;
  }
  const auto expires_at_ms = number_field(got.text(), "expiresAtMs");
  if (!expires_at_ms) {
    last_error_ = "lookup by key: the record has no expiresAtMs";
    return std::nullopt;
  }
  const std::int64_t now_ms =
      std::stoll(std::string{time.text(0)}) * 1000 + std::stoll(std::string{time.text(1)}) / 1000;
  if (*expires_at_ms <= now_ms - tolerance_ms) return std::nullopt;
  return std::string{got.text()};
}

bool reference_client::is_locked(std::string_view key) { return lookup_by_key(key).has_value(); }

bool reference_client::load(std::string_view name, script& into) {
  auto text = load_script(name);
  if (!text) {
    last_error_ = folder() + '/' + std::string{name} + ".lua cannot be read";
    return false;
  }
  into.text = std::move(*text);
  const answer loaded = command({"SCRIPT", "LOAD", into.text});
  if (!loaded.is(REDIS_REPLY_STRING)) {
    complain(loaded, "SCRIPT LOAD");
    return false;
  }
  into.sha1 = loaded.text();
  return true;
}

reference_client::answer reference_client::command(const std::vector<std::string>& arguments) {
  last_error_.clear();
  if (context_ == nullptr) return answer{nullptr};
  std::vector<const char*> texts;
  std::vector<std::size_t> lengths;
  for (const std::string& argument : arguments) {
    texts.push_back(argument.data());
    lengths.push_back(argument.size());
  }
  return answer{static_cast<redisReply*>(
      redisCommandArgv(context_.get(), static_cast<int>(texts.size()), texts.data(), lengths.data()))};
}

// A server that has forgotten the script gets its text.
reference_client::answer reference_client::run(const script& which, const std::vector<std::string>& keys,
                                               const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"EVALSHA", which.sha1, std::to_string(keys.size())};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  answer got = command(words);
  if (!got.is(REDIS_REPLY_ERROR) || !got.text().starts_with("NOSCRIPT")) return got;
  words[0] = "EVAL";
  words[1] = which.text;
  return command(words);
}

void reference_client::complain(const answer& about, std::string_view operation) {
  last_error_ = std::string{operation} + ": ";
  if (about.is(REDIS_REPLY_ERROR)) last_error_ += about.text();
  else if (context_ == nullptr) last_error_ += "not connected";
  else last_error_ += context_->err != 0 ? context_->errstr : "an answer that makes no sense";
}

}  // namespace syncguard::testing::reference

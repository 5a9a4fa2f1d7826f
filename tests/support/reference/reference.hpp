#pragma once

// The other side of interoperability tests: SyncGuard's algorithm as its newest document describes it, one script per
// operation, over a blocking connection. It shares nothing with the library but the way keys are built.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct redisContext;

namespace syncguard::testing::reference {

// The text of NAME.lua beside this file: acquire, release, extend, lookup, lookup_key. The folder is the environment's
// SYNCGUARD_REFERENCE, else the one that was compiled in as SYNCGUARD_REFERENCE_FOLDER.
//
// Returns: nothing where the file cannot be read.
std::optional<std::string> load_script(std::string_view name);

struct grant {
  std::string fence;  // 15 digits
  std::int64_t expires_at_ms = 0;
};

// What release and extend answer. The last is not the protocol's: no answer came, or one that makes no sense.
enum outcome : int { done = 1, other_owner = 0, absent = -1, expired = -2, failed = -100 };

struct extension {
  int code = failed;
  std::int64_t expires_at_ms = 0;
};

// Keys are in their normal form; which of them are reserved is not checked, as SyncGuard does not either.
//
// Errors: an operation that fails answers as if there were nothing (or `failed`), and last_error() says why. It is
//   empty after an operation that went well.
// Signals: writing to a server that is gone raises SIGPIPE; a test that kills its server ignores it.
class reference_client {
 public:
  reference_client();
  ~reference_client();

  reference_client(const reference_client&) = delete;
  reference_client& operator=(const reference_client&) = delete;

  // Reads and loads the scripts, too.
  [[nodiscard]] bool connect(const std::string& socket_path);

  // Nothing: contended.
  std::optional<grant> acquire(std::string_view key, std::string_view lock_id, std::int64_t ttl_ms);
  int release(std::string_view lock_id);
  extension extend(std::string_view lock_id, std::int64_t ttl_ms);

  // The stored JSON of a live lock.
  std::optional<std::string> lookup_by_id(std::string_view lock_id);
  std::optional<std::string> lookup_by_key(std::string_view key);
  bool is_locked(std::string_view key);

  const std::string& last_error() const noexcept { return last_error_; }

 private:
  struct script {
    std::string text;
    std::string sha1;
  };
  struct context_deleter {
    void operator()(redisContext* context) const noexcept;
  };
  class answer;

  bool load(std::string_view name, script& into);
  answer command(const std::vector<std::string>& arguments);
  answer run(const script& which, const std::vector<std::string>& keys, const std::vector<std::string>& arguments);
  void complain(const answer& about, std::string_view operation);

  std::unique_ptr<redisContext, context_deleter> context_;
  script acquire_, release_, extend_, lookup_;
  std::string last_error_;
};

}  // namespace syncguard::testing::reference

#pragma once

// A redis-server of the test's own: on a unix socket in a temporary folder, no TCP port, nothing persisted unless
// asked for. It can be stopped in every way in which a server can disappear.
//
// Whatever happens to the test, nothing is left behind: the kernel kills the server when the test dies, and a small
// process that waits for that removes the folder.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

struct redisContext;

namespace syncguard::testing {

// An answer of the server, copied out of hiredis.
struct redis_reply {
  enum class kind { none, nil, text, error, integer, array };

  kind type = kind::none;  // none: no answer came
  std::string text;        // of text and error; of none, what went wrong
  long long integer = 0;
  std::vector<redis_reply> elements;

  bool is_text(std::string_view wanted) const { return type == kind::text && text == wanted; }
};

struct redis_options {
  bool append_only = false;                 // keep every write, as far as the process itself is concerned
  std::vector<std::string> config_lines{};  // further lines of redis.conf
  std::string password{};                   // of the default user; command() uses it
};

// Errors: start() and restart() say on standard error what went wrong, with the end of the server's log.
class redis_server {
 public:
  explicit redis_server(redis_options options = {});
  ~redis_server();

  redis_server(const redis_server&) = delete;
  redis_server& operator=(const redis_server&) = delete;

  // Starts the server and waits until it answers. Returns whether it does.
  [[nodiscard]] bool start();

  // Ends it in the orderly way and starts it again. Data survives where append_only is set.
  [[nodiscard]] bool restart();

  // kill -9. Start it again with start().
  void kill_hard();

  // SIGSTOP and SIGCONT: there, but silent.
  void pause();
  void resume();

  bool config_set(const std::string& name, const std::string& value);

  // One command over a connection of its own, which is blocking: for set-up and checks.
  redis_reply command(const std::vector<std::string>& arguments,
                      std::chrono::milliseconds patience = std::chrono::seconds{10}) const;

  pid_t pid() const noexcept { return pid_; }
  const std::string& folder() const noexcept { return folder_; }
  const std::string& socket_path() const noexcept { return socket_path_; }

 private:
  bool make_folder();
  bool write_config() const;
  bool spawn();
  bool wait_until_ready();
  bool has_ended();
  void complain(std::string_view what) const;

  redis_options options_;
  std::string folder_;
  std::string socket_path_;
  pid_t pid_ = -1;
  pid_t janitor_ = -1;
  int janitor_pipe_ = -1;
};

// A blocking connection that stays, in RESP3: it asks the server to tell of changes, and keeps what it is told.
// Whatever the server did before it answers a command is known when command() returns.
class watching_connection {
 public:
  explicit watching_connection(const redis_server& server);
  ~watching_connection();
  watching_connection(const watching_connection&) = delete;
  watching_connection& operator=(const watching_connection&) = delete;

  redis_reply command(const std::vector<std::string>& arguments);

  // The keys that the server has told of since the last call, in that order.
  std::vector<std::string> take_told();

 private:
  static void pushed(void* self, void* push);

  redisContext* context_;
  std::vector<std::string> told_;
};

}  // namespace syncguard::testing

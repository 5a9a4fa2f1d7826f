#include "support/redis_server.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include <hiredis.h>

namespace syncguard::testing {

namespace {

using namespace std::chrono_literals;

constexpr auto start_patience = 30s;
constexpr auto stop_patience = 10s;

struct context_deleter {
  void operator()(redisContext* context) const noexcept { redisFree(context); }
};
struct reply_deleter {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};

redis_reply copy_of(const redisReply& reply) {
  redis_reply copy;
  switch (reply.type) {
    case REDIS_REPLY_NIL: copy.type = redis_reply::kind::nil; break;
    case REDIS_REPLY_INTEGER:
      copy.type = redis_reply::kind::integer;
      copy.integer = reply.integer;
      break;
    case REDIS_REPLY_ARRAY:
      copy.type = redis_reply::kind::array;
      for (std::size_t index = 0; index < reply.elements; ++index)
        copy.elements.push_back(copy_of(*reply.element[index]));
      break;
    default:
      copy.type = reply.type == REDIS_REPLY_ERROR ? redis_reply::kind::error : redis_reply::kind::text;
      if (reply.str != nullptr) copy.text.assign(reply.str, reply.len);
  }
  return copy;
}

timeval to_timeval(std::chrono::milliseconds time) {
  return {.tv_sec = time.count() / 1000, .tv_usec = time.count() % 1000 * 1000};
}

redis_reply run(redisContext& context, const std::vector<std::string>& arguments) {
  std::vector<const char*> texts;
  std::vector<std::size_t> lengths;
  for (const std::string& argument : arguments) {
    texts.push_back(argument.data());
    lengths.push_back(argument.size());
  }
  const std::unique_ptr<redisReply, reply_deleter> reply{static_cast<redisReply*>(
      redisCommandArgv(&context, static_cast<int>(texts.size()), texts.data(), lengths.data()))};
  if (reply != nullptr) return copy_of(*reply);
  redis_reply failure;
  failure.text = context.errstr;
  return failure;
}

// Waits for the test's end of the pipe to close, which the kernel does however the test ends; then the folder goes.
[[noreturn]] void be_janitor(int pipe_end, int tests_end, const std::string& folder) {
  close(tests_end);
  setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
  dup2(pipe_end, 0);
  close_range(1, ~0U, 0);
  char byte = 0;
  while (read(0, &byte, 1) < 0 && errno == EINTR) {
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

[[noreturn]] void be_server(const std::string& config, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the test died before the kernel was told to watch it
  const char* program = std::getenv("SYNCGUARD_REDIS_SERVER");
  if (program == nullptr) program = "redis-server";
  execlp(program, program, config.c_str(), nullptr);
  std::fprintf(stderr, "%s could not be started: %s\n", program, std::strerror(errno));
  _exit(127);
}

}  // namespace

redis_server::redis_server(redis_options options) : options_(std::move(options)) {}

redis_server::~redis_server() {
  kill_hard();
  if (janitor_pipe_ >= 0) close(janitor_pipe_);
  if (janitor_ > 0) waitpid(janitor_, nullptr, 0);
}

bool redis_server::start() {
  if (pid_ > 0) return true;
  if (folder_.empty() && !make_folder()) return false;
  return write_config() && spawn() && wait_until_ready();
}

bool redis_server::restart() {
  if (pid_ > 0) {
    kill(pid_, SIGCONT);
    kill(pid_, SIGTERM);
    const auto deadline = std::chrono::steady_clock::now() + stop_patience;
    while (!has_ended() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(5ms);
    kill_hard();
  }
  return start();
}

void redis_server::kill_hard() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void redis_server::pause() {
  if (pid_ <= 0) return;
  kill(pid_, SIGSTOP);
  int status = 0;
  waitpid(pid_, &status, WUNTRACED);  // until it has really stopped
}

void redis_server::resume() {
  if (pid_ > 0) kill(pid_, SIGCONT);
}

bool redis_server::config_set(const std::string& name, const std::string& value) {
  return command({"CONFIG", "SET", name, value}).is_text("OK");
}

redis_reply redis_server::command(const std::vector<std::string>& arguments, std::chrono::milliseconds patience) const {
  redis_reply failure;
  const std::unique_ptr<redisContext, context_deleter> context{
      redisConnectUnixWithTimeout(socket_path_.c_str(), to_timeval(patience))};
  if (context == nullptr || context->err != 0) {
    failure.text = context ? context->errstr : "out of memory";
    return failure;
  }
  redisSetTimeout(context.get(), to_timeval(patience));
  if (!options_.password.empty()) run(*context, {"AUTH", options_.password});
  return run(*context, arguments);
}

bool redis_server::make_folder() {
  const char* temporary = std::getenv("TMPDIR");
  std::string pattern = std::string{temporary != nullptr ? temporary : "/tmp"} + "/syncguard-redis-XXXXXX";
  constexpr std::string_view socket_name = "/redis.sock";
  if (pattern.size() + socket_name.size() >= sizeof(sockaddr_un::sun_path)) pattern = "/tmp/syncguard-redis-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    complain("no temporary folder could be made from " + pattern + ": " + std::strerror(errno));
    return false;
  }
  folder_ = pattern;
  socket_path_ = folder_ + std::string{socket_name};

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    complain(std::string{"no pipe could be made: "} + std::strerror(errno));
    return false;
  }
  janitor_ = fork();
  if (janitor_ == 0) be_janitor(ends[0], ends[1], folder_);
  close(ends[0]);
  janitor_pipe_ = ends[1];
  return janitor_ > 0;
}

bool redis_server::write_config() const {
  std::ofstream config{folder_ + "/redis.conf"};
  config << "port 0\nunixsocket \"" << socket_path_ << "\"\ndir \"" << folder_ << "\"\nlogfile \"" << folder_
         << "/redis.log\"\ndaemonize no\nsave \"\"\nappendonly " << (options_.append_only ? "yes" : "no")
         << "\nappendfsync no\n";
  if (!options_.password.empty()) config << "requirepass " << options_.password << '\n';
  for (const std::string& line : options_.config_lines) config << line << '\n';
  config.flush();
  if (!config) complain("redis.conf could not be written");
  return static_cast<bool>(config);
}

bool redis_server::spawn() {
  std::error_code ignored;
  std::filesystem::remove(socket_path_, ignored);  // left over by kill -9
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) be_server(folder_ + "/redis.conf", parent);
  if (pid_ < 0) complain(std::string{"no process could be made: "} + std::strerror(errno));
  return pid_ > 0;
}

bool redis_server::wait_until_ready() {
  const auto deadline = std::chrono::steady_clock::now() + start_patience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (command({"PING"}, 1s).is_text("PONG")) return true;
    if (has_ended()) {
      complain("redis-server ended at once");
      return false;
    }
    std::this_thread::sleep_for(5ms);
  }
  complain("redis-server did not answer in time");
  kill_hard();
  return false;
}

bool redis_server::has_ended() {
  if (waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ <= 0;
}

void redis_server::complain(std::string_view what) const {
  std::ifstream log{folder_ + "/redis.log"};
  const std::string text{std::istreambuf_iterator<char>{log}, {}};
  constexpr std::size_t shown_bytes = 2000;
  std::fprintf(stderr, "private redis: %.*s\n%s\n", static_cast<int>(what.size()), what.data(),
               text.size() > shown_bytes ? text.c_str() + (text.size() - shown_bytes) : text.c_str());
}

watching_connection::watching_connection(const redis_server& server)
    : context_(redisConnectUnixWithTimeout(server.socket_path().c_str(), to_timeval(10s))) {
  redisSetTimeout(context_, to_timeval(10s));
  context_->privdata = this;
  redisSetPushCallback(context_, pushed);
  command({"HELLO", "3"});
  command({"CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"});
}

watching_connection::~watching_connection() { redisFree(context_); }

redis_reply watching_connection::command(const std::vector<std::string>& arguments) {
  return run(*context_, arguments);
}

std::vector<std::string> watching_connection::take_told() {
  command({"PING"});
  return std::exchange(told_, {});
}

void watching_connection::pushed(void* self, void* push) {
  const std::unique_ptr<redisReply, reply_deleter> owned{static_cast<redisReply*>(push)};
  if (owned->elements != 2 || owned->element[1]->type != REDIS_REPLY_ARRAY) return;
  for (const redis_reply& key : copy_of(*owned->element[1]).elements)
    static_cast<watching_connection*>(self)->told_.push_back(key.text);
}

}  // namespace syncguard::testing

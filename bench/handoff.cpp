// How long it takes until a lock that one process releases is another's: two processes hand one lock back and forth
// over loopback, through one private Redis. First as the library does it, told by the server; then with polling, which
// is what it falls back to where the server refuses to tell.
//
// The two players talk over a socket pair, so that a hand-over always begins with one who holds and one who waits:
//   holder 'h'  I hold it: start to wait
//   waiter 'w'  I have been waiting for a while: my attempt has been made and refused, and the loop is asleep
// The holder then keeps it a little longer, notes the time and releases; the waiter notes when it was told. Both use
// the machine's monotonic clock, and a board in shared memory, where they also check that nobody else holds the lock.

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <uv.h>

#include <syncguard/client.hpp>
#include <syncguard/uv.hpp>

#include "figures.hpp"
#include "support/allocation_counter.hpp"
#include "support/redis_server.hpp"

namespace {

using namespace std::chrono_literals;
using namespace syncguard;
using namespace syncguard::bench;
using testing::allocation_counter;
using testing::redis_server;

constexpr double ratio_min = 20;
constexpr std::uint64_t settle_ms = 2;  // what a waiter waits before it says so, and what the holder then adds
constexpr std::uint64_t watchdog_ms = 30'000;
constexpr std::uint64_t set_up_ms = 500;
constexpr std::uint64_t look_ms = 5;
constexpr const char* key = "bench:handoff";

constexpr char say_held = 'h';
constexpr char say_waiting = 'w';
constexpr char say_end = 'e';

constexpr int nobody = -1;

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// What the players share.
struct board {
  static constexpr std::size_t hand_overs_max = 10'000;

  std::atomic<int> holder{nobody};
  std::atomic<std::uint64_t> last_fence{0};
  std::atomic<std::int64_t> released_ns{0};
  std::atomic<std::uint32_t> done{0};  // hand-overs
  std::atomic<std::uint64_t> attempts{0};
  std::atomic<std::uint64_t> wakes{0};
  std::atomic<std::uint64_t> allocations{0};
  std::int64_t taken_ns[hand_overs_max]{};
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

board* map_board(int file) {
  void* at = mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<board*>(at);
}

// --- one of the two
// ---------------------------------------------------------------------------------------------------

struct role {
  int number = 0;    // 0 begins
  bool told = true;  // by the server; else it polls
  std::uint32_t hand_overs = 0;
  std::string url;
  int board_file = -1;
  int socket = -1;
};

class player {
 public:
  player(const role& mine, board& shared, uv_loop_t* loop);
  ~player() = default;
  player(const player&) = delete;
  player& operator=(const player&) = delete;

  // Errors: said on standard error.
  bool play();

 private:
  void meet();
  void look_whether_ready();
  void hear();
  void say(char what);
  void tell_waiting() { say(say_waiting); }
  void take();
  void taken(syncguard::lock got);
  void give();
  void finish();
  void fail(const std::string& why);
  void note_begin();
  void watch();

  // After a while, in place of whatever was to come before.
  void later(std::uint64_t delay_ms, void (player::*what)());

  const role& mine_;
  board& shared_;
  uv_loop_t* loop_;
  uv_timer_t pause_{};
  uv_timer_t watchdog_{};
  uv_poll_t listening_{};
  void (player::*next_)() = nullptr;
  std::uint64_t looks_ = 0;
  client client_;
  syncguard::lock lock_;
  client_stats begin_;
  std::uint64_t allocations_at_begin_ = 0;
  allocation_counter counter_;
  bool over_ = false;
  bool failed_ = false;
};

client_options options_for(const role& mine) {
  client_options options;
  options.url = mine.url;
  options.client_name = "player-" + std::to_string(mine.number);
  return options;
}

player::player(const role& mine, board& shared, uv_loop_t* loop)
    : mine_(mine), shared_(shared), loop_(loop), client_(uv(loop), options_for(mine)) {
  uv_timer_init(loop_, &pause_);
  uv_timer_init(loop_, &watchdog_);
  uv_poll_init(loop_, &listening_, mine_.socket);
  pause_.data = watchdog_.data = listening_.data = this;
}

bool player::play() {
  watch();
  meet();
  uv_run(loop_, UV_RUN_DEFAULT);
  for (auto* handle : {reinterpret_cast<uv_handle_t*>(&pause_), reinterpret_cast<uv_handle_t*>(&watchdog_),
                       reinterpret_cast<uv_handle_t*>(&listening_)})
    uv_close(handle, nullptr);
  uv_run(loop_, UV_RUN_NOWAIT);
  return !failed_;
}

void player::watch() {
  uv_timer_start(
      &watchdog_, [](uv_timer_t* timer) { static_cast<player*>(timer->data)->fail("nothing happened for too long"); },
      watchdog_ms, 0);
}

// A lock of its own comes and goes, so that the connections are there, or refused.
void player::meet() {
  client_.lock("bench:player:" + std::to_string(mine_.number), {.ttl = 30s}, [this](result<syncguard::lock> got) {
    if (!got) return fail(describe(got.error()));
    lock_ = std::move(*got);
    lock_.release([this](result<bool> done) {
      if (!done || !*done) return fail(done ? "a lock was gone" : describe(done.error()));
      later(look_ms, &player::look_whether_ready);
    });
  });
}

void player::look_whether_ready() {
  const bool patient = ++looks_ * look_ms < set_up_ms;
  if (client_.stats().watching != mine_.told && !patient)
    return fail(mine_.told ? "the server does not tell of changes" : "the server tells of changes");
  // That nothing comes is known only after a while.
  if (client_.stats().watching != mine_.told || (!mine_.told && patient))
    return later(look_ms, &player::look_whether_ready);
  uv_poll_start(&listening_, UV_READABLE,
                [](uv_poll_t* handle, int, int) { static_cast<player*>(handle->data)->hear(); });
  note_begin();
  if (mine_.number == 0) take();
}

void player::note_begin() {
  begin_ = client_.stats();
  allocations_at_begin_ = counter_.count();
}

void player::later(std::uint64_t delay_ms, void (player::*what)()) {
  next_ = what;
  uv_update_time(loop_);
  uv_timer_start(
      &pause_,
      [](uv_timer_t* timer) {
        auto& self = *static_cast<player*>(timer->data);
        (self.*self.next_)();
      },
      delay_ms, 0);
}

void player::hear() {
  char what = 0;
  const ssize_t got = recv(mine_.socket, &what, 1, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got != 1) return fail("the other player is gone");
  switch (what) {
    case say_held: take(); return later(settle_ms, &player::tell_waiting);
    case say_waiting: return later(settle_ms, &player::give);
    default: return finish();
  }
}

void player::say(char what) {
  if (send(mine_.socket, &what, 1, MSG_NOSIGNAL) != 1) fail("the other player cannot be reached");
}

void player::take() {
  client_.lock(key, {.ttl = 30s, .wait = 60s}, [this](result<syncguard::lock> got) {
    const std::int64_t now = now_ns();
    if (!got) return fail(describe(got.error()));
    if (shared_.released_ns != 0) shared_.taken_ns[shared_.done++] = now - shared_.released_ns;
    taken(std::move(*got));
  });
}

void player::taken(syncguard::lock got) {
  if (shared_.holder.exchange(mine_.number) != nobody) return fail("two hold the lock");
  const std::uint64_t fence = got.fence().number();
  if (shared_.last_fence.exchange(fence) >= fence) return fail("a fence did not rise");
  if (!got.valid()) return fail("a lock that was just acquired is not valid");
  lock_ = std::move(got);
  watch();
  if (shared_.done == 0) note_begin();
  if (shared_.done < mine_.hand_overs) return say(say_held);
  say(say_end);
  finish();
}

void player::give() {
  if (shared_.holder.exchange(nobody) != mine_.number) return fail("somebody else held the lock, too");
  shared_.released_ns = now_ns();
  lock_.release([this](result<bool> done) {
    if (!done || !*done) fail(done ? "a lock was gone before it was released" : describe(done.error()));
  });
}

void player::finish() {
  if (std::exchange(over_, true)) return;
  const client_stats end = client_.stats();
  shared_.attempts += end.attempts - begin_.attempts;
  shared_.wakes += end.wakes - begin_.wakes;
  shared_.allocations += counter_.count() - allocations_at_begin_;
  if (end.watching != mine_.told) fail(mine_.told ? "the server stopped telling" : "the server told of changes");
  if (end.lost != 0) fail("a lock was lost");
  uv_poll_stop(&listening_);
  client_.close([this](const result<void>&) { uv_stop(loop_); });
}

void player::fail(const std::string& why) {
  std::fprintf(stderr, "bench_handoff: player %d, hand-over %u: %s\n", mine_.number, shared_.done.load(), why.c_str());
  failed_ = true;
  uv_stop(loop_);
}

int be_player(const role& mine) {
  board* shared = map_board(mine.board_file);
  if (shared == nullptr) return exit_failed;
  uv_loop_t loop;
  uv_loop_init(&loop);
  bool fine = false;
  {
    player one{mine, *shared, &loop};
    fine = one.play();
  }
  uv_run(&loop, UV_RUN_NOWAIT);
  if (uv_loop_close(&loop) != 0) std::fprintf(stderr, "bench_handoff: something was left in the loop\n");
  return fine ? 0 : exit_failed;
}

// --- the one who starts both
// ------------------------------------------------------------------------------------------

struct settings {
  bool quick = false;
  std::string out;

  std::uint32_t told_hand_overs() const { return quick ? 200 : 2000; }
  std::uint32_t polled_hand_overs() const { return quick ? 40 : 200; }
};

struct match {
  double p50_us = 0;
  double p99_us = 0;
  double attempts = 0;  // per hand-over, as all of these
  double wakes = 0;
  double allocations = 0;
};

void complain(const char* what) { std::fprintf(stderr, "bench_handoff: %s: %s\n", what, std::strerror(errno)); }

// Starts this program again, as a player. Only what it needs stays open in it.
pid_t start_player(const role& mine) {
  const std::vector<std::string> words{"bench_handoff",
                                       "--player",
                                       std::to_string(mine.number),
                                       mine.told ? "told" : "polling",
                                       std::to_string(mine.hand_overs),
                                       mine.url,
                                       std::to_string(mine.board_file),
                                       std::to_string(mine.socket)};
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(exit_failed);
  fcntl(mine.board_file, F_SETFD, 0);
  fcntl(mine.socket, F_SETFD, 0);
  execv("/proc/self/exe", arguments.data());
  _exit(exit_failed);
}

bool ended_well(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::optional<match> evaluate(const board& shared, std::uint32_t hand_overs) {
  if (shared.done != hand_overs) {
    std::fprintf(stderr, "bench_handoff: %u of %u hand-overs were made\n", shared.done.load(), hand_overs);
    return std::nullopt;
  }
  std::vector<double> taken_us;
  for (std::uint32_t at = hand_overs / 20; at < hand_overs; ++at)  // the first ones warm up
    taken_us.push_back(static_cast<double>(shared.taken_ns[at]) / 1000);
  const double all = hand_overs;
  return match{.p50_us = percentile(taken_us, 0.5),
               .p99_us = percentile(taken_us, 0.99),
               .attempts = static_cast<double>(shared.attempts) / all,
               .wakes = static_cast<double>(shared.wakes) / all,
               .allocations = static_cast<double>(shared.allocations) / all};
}

std::optional<match> play_match(bool told, std::uint32_t hand_overs, const std::string& url) {
  std::fprintf(stderr, "%s: %u hand-overs\n", told ? "told by the server" : "polling", hand_overs);
  const int file = memfd_create("board", MFD_CLOEXEC);
  int ends[2];
  if (file < 0 || ftruncate(file, sizeof(board)) != 0 ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    complain("the players' board could not be made");
    return std::nullopt;
  }
  auto* shared = map_board(file);
  if (shared == nullptr) {
    complain("the players' board could not be mapped");
    return std::nullopt;
  }
  new (shared) board;
  const pid_t first = start_player({0, told, hand_overs, url, file, ends[0]});
  const pid_t second = start_player({1, told, hand_overs, url, file, ends[1]});
  // One that dies is noticed by the other, whose socket ends.
  close(ends[0]);
  close(ends[1]);
  close(file);
  const bool first_well = ended_well(first);
  const bool second_well = ended_well(second);
  const auto result = first_well && second_well ? evaluate(*shared, hand_overs) : std::nullopt;
  if (result)
    std::fprintf(stderr, "%s: p50 %.0f us, p99 %.0f us, %.2f attempts, %.2f notices\n",
                 told ? "told by the server" : "polling", result->p50_us, result->p99_us, result->attempts,
                 result->wakes);
  munmap(shared, sizeof(board));
  return result;
}

int find_free_port() {
  const int socket_file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  int port = 0;
  if (bind(socket_file, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      getsockname(socket_file, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    port = ntohs(address.sin_port);
  close(socket_file);
  return port;
}

std::vector<figure> report(const match& told, const match& polling) {
  std::optional<double> allocations;
  if (allocation_counter::available()) allocations = told.allocations;
  const double ratio = polling.p50_us / told.p50_us;
  return {
      {.name = "handoff.p50",
       .value = told.p50_us,
       .unit = "us",
       .baseline = polling.p50_us,
       .ratio = ratio,
       .allocations_per_operation = allocations,
       .note = ratio >= ratio_min ? "wanted: a ratio of at least 20" : "MISSED: a ratio of at least 20 wanted"},
      {.name = "handoff.p99",
       .value = told.p99_us,
       .unit = "us",
       .baseline = polling.p99_us,
       .ratio = polling.p99_us / told.p99_us},
      {.name = "handoff.attempts", .value = told.attempts, .unit = "op", .baseline = polling.attempts},
      {.name = "handoff.notices", .value = told.wakes, .unit = "op", .baseline = polling.wakes},
  };
}

// Returns: nothing where it failed, which was said on standard error.
std::optional<std::vector<figure>> measure(const settings& wanted) {
  const int port = find_free_port();
  redis_server server{{.config_lines = {"port " + std::to_string(port), "bind 127.0.0.1"}}};
  if (!server.start()) return std::nullopt;
  if (!server.command({"ACL", "SETUSER", "poller", "reset", "on", ">secret", "~*", "+@all", "-client|tracking"})
           .is_text("OK")) {
    std::fprintf(stderr, "bench_handoff: the user who may not be told could not be made\n");
    return std::nullopt;
  }
  const std::string where = "127.0.0.1:" + std::to_string(port);
  const auto told = play_match(true, wanted.told_hand_overs(), "redis://" + where);
  if (!told) return std::nullopt;
  const auto polling = play_match(false, wanted.polled_hand_overs(), "redis://poller:secret@" + where);
  if (!polling) return std::nullopt;
  return report(*told, *polling);
}

constexpr const char* usage =
    "usage: bench_handoff [--quick] [--out FILE]\n"
    "\n"
    "  --quick     200 hand-overs, and 40 with polling, in place of 2000 and 200\n"
    "  --out FILE  write the figures to FILE, as JSON\n";

int to_number(const char* text) {
  int number = -1;
  std::from_chars(text, text + std::strlen(text), number);
  return number;
}

// As start_player() writes it.
std::optional<role> parse_role(int count, char** arguments) {
  if (count != 8) return std::nullopt;
  role mine{to_number(arguments[2]),
            std::string_view{arguments[3]} == "told",
            static_cast<std::uint32_t>(to_number(arguments[4])),
            arguments[5],
            to_number(arguments[6]),
            to_number(arguments[7])};
  if (mine.hand_overs > board::hand_overs_max || mine.board_file < 0 || mine.socket < 0) return std::nullopt;
  return mine;
}

// Returns: nothing where the program should end with exit_usage.
std::optional<settings> parse(int count, char** arguments) {
  settings wanted;
  for (int at = 1; at < count; ++at) {
    const std::string_view argument = arguments[at];
    if (argument == "--quick") {
      wanted.quick = true;
    } else if (argument == "--out" && at + 1 < count && *arguments[at + 1] != '\0') {
      wanted.out = arguments[++at];
    } else {
      std::fprintf(stderr, "bench_handoff: unknown or incomplete: %s\n%s", arguments[at], usage);
      return std::nullopt;
    }
  }
  return wanted;
}

}  // namespace

int main(int count, char** arguments) {
  signal(SIGPIPE, SIG_IGN);
  if (count > 1 && std::string_view{arguments[1]} == "--player") {
    const auto mine = parse_role(count, arguments);
    return mine ? be_player(*mine) : exit_usage;
  }
  const auto wanted = parse(count, arguments);
  if (!wanted) return exit_usage;
  if (!wanted->out.empty() && !is_writable("bench_handoff", wanted->out)) return exit_failed;

  const auto figures = measure(*wanted);
  if (!figures) return exit_failed;
  print_figures(*figures, "polling");
  if (!wanted->out.empty() && !write_figures(wanted->out, *figures)) {
    std::fprintf(stderr, "bench_handoff: %s could not be written\n", wanted->out.c_str());
    return exit_failed;
  }
  return figures->front().ratio >= ratio_min ? 0 : exit_failed;
}

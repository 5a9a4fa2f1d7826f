// Very many locks that one client holds: whether all of them stay alive, and what that costs the program that holds
// them, in memory, in CPU and in the length of its loop's turns. Against one private Redis.
//
// The locks are acquired in waves. Then there is a pause in which each of them gets its first heartbeat, and the pools
// and buffers their size; what is measured of the holding comes after it. A judge that is not the client looks at the
// records before and after.

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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
#include "support/reference/reference.hpp"
#include "turn_meter.hpp"

namespace {

using namespace std::chrono_literals;
using namespace syncguard;
using namespace syncguard::bench;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::allocation_counter;
using testing::redis_server;
using testing::reference::reference_client;

constexpr std::size_t looked_at = 100;  // records that the judge reads; a blocking call each
constexpr auto acquire_patience = 300s;
constexpr auto set_up_patience = 10s;
constexpr auto progress_interval = 5s;

// What is wanted; only a lost lock makes the run fail.
constexpr double memory_target_bytes = 256;
constexpr double turn_target_us = 2000;
constexpr std::size_t few_locks = 50'000;

struct settings {
  std::size_t locks = 100'000;
  std::size_t wave = 1000;
  seconds ttl = 6s;
  seconds hold = 60s;
  std::string out;
};

class key_text {
 public:
  explicit key_text(std::size_t number) noexcept {
    size_ = static_cast<std::size_t>(std::snprintf(text_, sizeof text_, "bench:held:%07zu", number));
  }
  operator std::string_view() const noexcept { return {text_, size_}; }

 private:
  char text_[40];
  std::size_t size_;
};

double cpu_s_of_this_process() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto to_s = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return to_s(usage.ru_utime) + to_s(usage.ru_stime);
}

double cpu_s_of(const redis_server& server) {
  const std::string info = server.command({"INFO", "cpu"}).text;
  const auto read = [&](std::string_view name) {
    const std::size_t at = info.find(name);
    return at == std::string::npos ? 0 : std::strtod(info.c_str() + at + name.size(), nullptr);
  };
  return read("used_cpu_sys:") + read("used_cpu_user:");
}

// Bytes that are allocated and not freed, in the heap and beside it.
double live_heap_bytes() {
  const struct mallinfo2 now = mallinfo2();
  return static_cast<double>(now.uordblks + now.hblkhd);
}

struct reading {
  std::chrono::steady_clock::time_point at;
  double client_cpu_s;
  double server_cpu_s;
  double heap_bytes;
  std::uint64_t allocations;
  client_stats stats;
};

class benchmark {
 public:
  benchmark(const settings& wanted, redis_server& server, uv_loop_t* loop);
  ~benchmark();
  benchmark(const benchmark&) = delete;
  benchmark& operator=(const benchmark&) = delete;

  // Errors: said on standard error.
  bool run();
  const std::vector<figure>& figures() const noexcept { return figures_; }

 private:
  bool connect();
  bool acquire();
  bool hold();
  bool is_right(const char* when);
  bool let_go();

  client_options options();
  void start_wave();
  void acquired(std::size_t number, result<syncguard::lock> got);
  reading read() const;
  void report_acquiring(const reading& before, const reading& after);
  void report_holding(const reading& before, const reading& after);

  void turn_for(milliseconds time);
  bool complain(const std::string& why);
  bool complain_of_loss(const char* when);

  const settings& wanted_;
  redis_server& server_;
  uv_loop_t* loop_;
  turn_meter meter_;
  uv_timer_t* alarm_;  // closed by the loop after this object is gone
  allocation_counter counter_;
  reference_client judge_;
  client client_;
  std::vector<syncguard::lock> locks_;

  std::size_t next_ = 0;
  std::size_t pending_ = 0;
  std::size_t lost_ = 0;
  std::size_t not_given_back_ = 0;
  std::size_t first_part_ = 0;  // about a tenth of the locks, and the heap when they were there
  double heap_with_first_part_ = 0;
  std::optional<lost> why_;
  std::string failure_;
  std::vector<figure> figures_;
};

client_options benchmark::options() {
  client_options options;
  options.url = unix_url(server_.socket_path());
  options.on_release_error = [this](const error& why) {
    if (++not_given_back_ == 1) failure_ = describe(why);
  };
  return options;
}

benchmark::benchmark(const settings& wanted, redis_server& server, uv_loop_t* loop)
    : wanted_(wanted),
      server_(server),
      loop_(loop),
      meter_(loop),
      alarm_(new uv_timer_t),
      client_(uv(loop), options()),
      locks_(wanted.locks) {
  uv_timer_init(loop_, alarm_);
}

benchmark::~benchmark() {
  uv_close(reinterpret_cast<uv_handle_t*>(alarm_),
           [](uv_handle_t* handle) { delete reinterpret_cast<uv_timer_t*>(handle); });
}

bool benchmark::complain(const std::string& why) {
  std::fprintf(stderr, "bench_held: %s\n", why.c_str());
  return false;
}

bool benchmark::complain_of_loss(const char* when) {
  return complain(std::to_string(lost_) + " locks were lost " + when + ", the first: " + std::string{to_string(*why_)});
}

// Ends earlier where somebody stops the loop.
void benchmark::turn_for(milliseconds time) {
  uv_update_time(loop_);
  uv_timer_start(
      alarm_, [](uv_timer_t* timer) { uv_stop(timer->loop); }, static_cast<std::uint64_t>(time.count()), 0);
  uv_run(loop_, UV_RUN_DEFAULT);
  uv_timer_stop(alarm_);
}

bool benchmark::run() { return connect() && acquire() && hold() && let_go(); }

// One lock comes and goes, so that both connections are there.
bool benchmark::connect() {
  std::fprintf(stderr, "connect\n");
  if (!judge_.connect(server_.socket_path())) return complain(judge_.last_error());
  if (const auto checked = client_.check(); !checked) return complain(describe(checked.error()));
  client_.lock("bench:warm-up", {.ttl = wanted_.ttl}, [this](result<syncguard::lock> got) {
    if (!got) failure_ = describe(got.error());
  });
  const auto deadline = std::chrono::steady_clock::now() + set_up_patience;
  while (!client_.stats().watching && failure_.empty() && std::chrono::steady_clock::now() < deadline) turn_for(10ms);
  turn_for(50ms);
  if (!failure_.empty()) return complain(failure_);
  const client_stats stats = client_.stats();
  if (!stats.watching || stats.held != 0 || stats.pending != 0) return complain("one lock did not come and go");
  return judge_.is_locked("bench:warm-up") ? complain("a released lock is still there") : true;
}

reading benchmark::read() const {
  return {std::chrono::steady_clock::now(),
          cpu_s_of_this_process(),
          cpu_s_of(server_),
          live_heap_bytes(),
          counter_.count(),
          client_.stats()};
}

bool benchmark::acquire() {
  std::fprintf(stderr, "acquire %zu locks, %zu at a time\n", wanted_.locks, wanted_.wave);
  const reading before = read();
  meter_.clear();
  start_wave();
  turn_for(acquire_patience);
  const reading after = read();
  if (!failure_.empty()) return complain(failure_);
  if (lost_ > 0) return complain_of_loss("while others were acquired: the server is too slow for so many");
  if (client_.stats().held != wanted_.locks) return complain("the locks could not be acquired in time");
  report_acquiring(before, after);
  return is_right("after acquiring");
}

void benchmark::start_wave() {
  const std::size_t end = std::min(next_ + wanted_.wave, wanted_.locks);
  if (next_ <= wanted_.locks / 10) {
    first_part_ = next_;
    heap_with_first_part_ = live_heap_bytes();
  }
  for (; next_ < end; ++next_, ++pending_)
    client_.lock(key_text{next_}, {.ttl = wanted_.ttl},
                 [this, number = next_](result<syncguard::lock> got) { acquired(number, std::move(got)); });
}

void benchmark::acquired(std::size_t number, result<syncguard::lock> got) {
  if (got) {
    locks_[number] = std::move(*got);
    locks_[number].on_lost([this](lost why) {
      ++lost_;
      if (!why_) why_ = why;
    });
  } else if (failure_.empty()) {
    failure_ = describe(got.error());
  }
  if (--pending_ > 0) return;
  if (next_ < wanted_.locks && failure_.empty() && lost_ == 0) start_wave();
  else uv_stop(loop_);
}

// Every lock by what it says itself, some by what the server has of them.
bool benchmark::is_right(const char* when) {
  meter_.skip();
  std::size_t wrong = 0;
  for (std::size_t number = 0; number < locks_.size(); ++number)
    if (!locks_[number].valid() || locks_[number].key() != std::string_view{key_text{number}}) ++wrong;
  if (wrong > 0) return complain(std::to_string(wrong) + " locks are not valid " + when);
  for (std::size_t sample = 0; sample < looked_at; ++sample) {
    const syncguard::lock& lock = locks_[sample * locks_.size() / looked_at];
    const auto record = judge_.lookup_by_key(lock.key());
    if (!record || record->find(lock.id().view()) == std::string::npos ||
        record->find(lock.fence().to_text().view()) == std::string::npos)
      return complain("the server does not have " + std::string{lock.key()} + ' ' + when);
  }
  return true;
}

bool benchmark::hold() {
  std::fprintf(stderr, "first heartbeats\n");
  const std::uint64_t heartbeats_before = client_.stats().heartbeats;
  turn_for(wanted_.ttl / 2);
  if (client_.stats().heartbeats < heartbeats_before + wanted_.locks / 2) return complain("there are no heartbeats");

  const reading before = read();
  meter_.clear();
  for (milliseconds left = wanted_.hold; left > 0ms && lost_ == 0;) {
    const milliseconds part = std::min<milliseconds>(left, progress_interval);
    const std::uint64_t sent = client_.stats().heartbeats;
    turn_for(part);
    left -= part;
    meter_.skip();
    std::fprintf(stderr, "hold: %lld s left, %.0f heartbeats/s, longest turn %.0f us, heap %+.0f bytes, lost %zu\n",
                 static_cast<long long>(left.count() / 1000),
                 static_cast<double>(client_.stats().heartbeats - sent) * 1000 / static_cast<double>(part.count()),
                 meter_.wall().max_us(), live_heap_bytes() - before.heap_bytes, lost_);
  }
  report_holding(before, read());
  if (lost_ > 0) return complain_of_loss("while they were held");
  return is_right("after holding");
}

bool benchmark::let_go() {
  std::fprintf(stderr, "give back\n");
  bool closed = false;
  client_.close([&closed, this](const result<void>&) {
    closed = true;
    uv_stop(loop_);
  });
  turn_for(acquire_patience);
  if (!closed) return complain("the client did not close");
  if (not_given_back_ > 0)
    return complain(std::to_string(not_given_back_) + " locks could not be given back, the first: " + failure_);
  for (std::size_t sample = 0; sample < looked_at; ++sample)
    if (judge_.is_locked(key_text{sample * locks_.size() / looked_at}))
      return complain("a lock is still there after the client was closed");
  return true;
}

void benchmark::report_acquiring(const reading& before, const reading& after) {
  const auto locks = static_cast<double>(wanted_.locks);
  const std::chrono::duration<double> taken = after.at - before.at;
  const auto key_bytes = static_cast<double>(std::string_view{key_text{0}}.size());
  const double each = (after.heap_bytes - before.heap_bytes) / locks - key_bytes;
  const auto further = static_cast<double>(wanted_.locks - first_part_);
  const double more = (after.heap_bytes - heap_with_first_part_) / further - key_bytes;
  figures_.push_back({.name = "held.acquire", .value = locks / taken.count(), .unit = "lock/s"});
  figures_.push_back({.name = "held.acquire_turn_max",
                      .value = meter_.wall().max_us(),
                      .unit = "us",
                      .note = "a wave is started in one turn"});
  figures_.push_back({.name = "held.acquire_turn_cpu_max", .value = meter_.cpu().max_us(), .unit = "us"});
  std::string note = each <= memory_target_bytes ? "wanted: at most 256" : "MISSED: at most 256 wanted";
  if (wanted_.locks < few_locks) note = "pools of so few weigh too much to judge it";
  figures_.push_back({.name = "held.memory_per_lock", .value = each, .unit = "bytes", .note = std::move(note)});
  figures_.push_back({.name = "held.memory_per_further_lock",
                      .value = more,
                      .unit = "bytes",
                      .note = "once the pools for waves of " + std::to_string(wanted_.wave) + " are there"});
}

void benchmark::report_holding(const reading& before, const reading& after) {
  const std::chrono::duration<double> taken = after.at - before.at;
  const auto sent = static_cast<double>(after.stats.heartbeats - before.stats.heartbeats);
  const auto batches = static_cast<double>(after.stats.batches - before.stats.batches);
  std::optional<double> allocations;
  if (allocation_counter::available())
    allocations = static_cast<double>(after.allocations - before.allocations) / std::max(sent, 1.0);
  const double turn_us = meter_.wall().percentile_us(0.999);
  const auto add = [&](const char* name, double value, const char* unit, std::string note = {}) {
    figures_.push_back({.name = name, .value = value, .unit = unit, .note = std::move(note)});
  };
  add("held.lost", static_cast<double>(lost_), "locks", lost_ == 0 ? "wanted: none" : "MISSED: none wanted");
  add("held.heartbeats", sent / taken.count(), "op/s");
  figures_.back().allocations_per_operation = allocations;
  add("held.heartbeats_per_batch", sent / std::max(batches, 1.0), "op");
  add("held.heap_growth", after.heap_bytes - before.heap_bytes, "bytes", "after the first round; wanted: none");
  add("held.turn_p999", turn_us, "us", turn_us < turn_target_us ? "wanted: below 2000" : "MISSED: below 2000 wanted");
  add("held.turn_max", meter_.wall().max_us(), "us", std::to_string(meter_.wall().size()) + " turns");
  add("held.turn_cpu_p999", meter_.cpu().percentile_us(0.999), "us", "without interruptions by others");
  add("held.turn_cpu_max", meter_.cpu().max_us(), "us");
  add("held.client_cpu", 100 * (after.client_cpu_s - before.client_cpu_s) / taken.count(), "% of a core");
  add("held.server_cpu", 100 * (after.server_cpu_s - before.server_cpu_s) / taken.count(), "% of a core");
}

constexpr const char* usage =
    "usage: bench_held [--quick] [--out FILE] [--locks N] [--wave N] [--ttl SECONDS] [--hold SECONDS]\n"
    "\n"
    "  --quick         10 000 locks for 12 s, in place of 100 000 for 60 s\n"
    "  --out FILE      write the figures to FILE, as JSON\n"
    "  --locks N       how many locks\n"
    "  --wave N        how many calls of lock() are pending at most; 1000 if not given\n"
    "  --ttl SECONDS   their time to live; 6 if not given\n"
    "  --hold SECONDS  how long they are held while it is measured\n";

std::optional<std::size_t> to_number(std::string_view text) {
  std::size_t number = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr std::size_t number_max = 10'000'000;
  if (why != std::errc{} || end != text.data() + text.size() || number < 1 || number > number_max) return std::nullopt;
  return number;
}

// Returns: nothing where the program should end with exit_usage.
std::optional<settings> parse(int count, char** arguments) {
  settings wanted;
  const auto refuse = [](const char* why, std::string_view what) {
    std::fprintf(stderr, "bench_held: %s: %.*s\n%s", why, static_cast<int>(what.size()), what.data(), usage);
    return std::nullopt;
  };
  for (int at = 1; at < count; ++at) {
    const std::string_view argument = arguments[at];
    if (argument == "--quick") {
      wanted.locks = 10'000;
      wanted.hold = 12s;
      continue;
    }
    if (argument != "--out" && argument != "--locks" && argument != "--wave" && argument != "--ttl" &&
        argument != "--hold")
      return refuse("unknown argument", argument);
    if (at + 1 == count || *arguments[at + 1] == '\0') return refuse("a value is missing after", argument);
    const std::string_view value = arguments[++at];
    if (argument == "--out") {
      wanted.out = value;
      continue;
    }
    const auto number = to_number(value);
    if (!number) return refuse("not a number that makes sense", value);
    if (argument == "--locks") wanted.locks = *number;
    if (argument == "--wave") wanted.wave = *number;
    if (argument == "--ttl") wanted.ttl = seconds{*number};
    if (argument == "--hold") wanted.hold = seconds{*number};
  }
  return wanted;
}

}  // namespace

int main(int count, char** arguments) {
  const auto wanted = parse(count, arguments);
  if (!wanted) return exit_usage;
  signal(SIGPIPE, SIG_IGN);
  if (!wanted->out.empty() && !is_writable("bench_held", wanted->out)) return exit_failed;

  redis_server server;
  if (!server.start()) return exit_failed;

  uv_loop_t loop;
  uv_loop_init(&loop);
  turn_meter::configure(&loop);
  std::vector<figure> figures;
  bool fine = false;
  {
    benchmark all{*wanted, server, &loop};
    fine = all.run();
    figures = all.figures();
  }
  uv_run(&loop, UV_RUN_NOWAIT);
  if (uv_loop_close(&loop) != 0) std::fprintf(stderr, "bench_held: something was left in the loop\n");

  if (!figures.empty()) print_figures(figures, "baseline");
  if (!fine) return exit_failed;
  if (wanted->out.empty() || write_figures(wanted->out, figures)) return 0;
  std::fprintf(stderr, "bench_held: %s could not be written\n", wanted->out.c_str());
  return exit_failed;
}

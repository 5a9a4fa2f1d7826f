// A thousand locks lost at once, in every way in which locks are lost: each holder is told exactly once, and where its
// validity ends, not later than another process gets the lock. Built for each loop.
//
// The other process is this program again, with an argument: it waits for all of the locks and notes when it got each.
// Both sides read CLOCK_BOOTTIME, which is one clock for all processes.
//
// The promise holds while the holder's loop is responsive. Whether it was is measured; a round in which it was not is
// repeated.

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "contract/locks.hpp"
#include "support/relay.hpp"

namespace syncguard::testing {

namespace {

constexpr std::size_t lock_count = 1000;
constexpr auto ttl = 2000ms;
constexpr auto margin = 200ms;  // the default for that time to live
constexpr int rounds_max = 3;

std::string key_of(int round, std::size_t index) {
  return "round " + std::to_string(round) + ", lock " + std::to_string(index);
}

// --- the other process
// ------------------------------------------------------------------------------------------------

struct waiter_report {
  std::array<std::int64_t, lock_count> got_us{};
  std::array<std::uint64_t, lock_count> fence{};
  std::uint64_t attempts = 0;
  std::uint64_t wakes = 0;
};

bool write_all(int to, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t written = write(to, at, bytes);
    if (written <= 0) return false;
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

bool turn_until(test_loop& where, const std::function<bool()>& holds, milliseconds at_most) {
  const std::int64_t end_us = now_us() + at_most.count() * 1000;
  while (!holds()) {
    if (now_us() > end_us) return false;
    where.turn(5ms);
  }
  return true;
}

// Says "w" on standard output when it waits for all of them, and then the report, as bytes.
int be_waiter(const std::string& url, int round) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto where = make_test_loop();
  client_options options;
  options.url = url;
  options.client_name = "waiter";
  client own{where->for_client(), options};
  const auto report = std::make_unique<waiter_report>();
  std::vector<syncguard::lock> held(lock_count);
  std::size_t got = 0;
  std::size_t failed = 0;

  // The connection that is told of changes comes first.
  bool warm = false;
  own.lock("warm-up", {.ttl = 10s}, [&warm](result<syncguard::lock>) { warm = true; });
  if (!turn_until(
          *where, [&] { return warm && own.stats().watching; }, 20s))
    return 3;

  struct slot {
    waiter_report* report;
    std::vector<syncguard::lock>* held;
    std::size_t* got;
    std::size_t* failed;
    std::size_t index;
  };
  for (std::size_t index = 0; index < lock_count; ++index) {
    own.lock(key_of(round, index), {.ttl = 60s, .wait = 120s},
             [to = slot{report.get(), &held, &got, &failed, index}](result<syncguard::lock> outcome) {
               if (!outcome) {
                 ++*to.failed;
                 return;
               }
               to.report->got_us[to.index] = now_us();
               to.report->fence[to.index] = outcome->fence().number();
               ++*to.got;
               (*to.held)[to.index] = *std::move(outcome);
             });
  }
  if (!turn_until(
          *where, [&] { return own.stats().attempts > lock_count; }, 20s))
    return 4;
  turn_until(
      *where, [] { return false; }, 300ms);
  if (got + failed > 0 || !write_all(STDOUT_FILENO, "w", 1)) return 5;

  turn_until(
      *where, [&] { return got + failed == lock_count; }, 60s);
  report->attempts = own.stats().attempts;
  report->wakes = own.stats().wakes;
  return write_all(STDOUT_FILENO, report.get(), sizeof *report) ? 0 : 6;
}

// Starts this program again. What it says can be read without waiting.
class other_process {
 public:
  ~other_process() { end(); }

  bool start(int round) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    const std::string url = unix_url();
    const std::string number = std::to_string(round);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execl("/proc/self/exe", "test_losses", "waiter", url.c_str(), number.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    from_ = ends[0];
    fcntl(from_, F_SETFL, O_NONBLOCK);
    said_.clear();
    return pid_ > 0;
  }

  // Reads what there is; how many bytes it has said in all.
  std::size_t said() {
    std::array<char, 65'536> bytes;
    while (true) {
      const ssize_t got = read(from_, bytes.data(), bytes.size());
      if (got <= 0) return said_.size();
      said_.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }

  waiter_report report() const {
    waiter_report copy;
    std::memcpy(&copy, said_.data() + 1, sizeof copy);
    return copy;
  }

  void end() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (from_ >= 0) close(from_);
    pid_ = from_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int from_ = -1;
  std::string said_;
};

other_process other;
std::unique_ptr<relay> between;

int set_up_losses(void** state) {
  if (set_up(state) != 0) return -1;
  between = std::make_unique<relay>(server().folder() + "/relay.sock", server().socket_path());
  return between->start() ? 0 : -1;
}

int tear_down_losses(void** state) {
  other.end();
  const int outcome = tear_down(state);
  between.reset();
  return outcome;
}

// --- the holder
// -------------------------------------------------------------------------------------------------------

struct held_by_us {
  syncguard::lock held;
  int told = 0;
  lost why{};
  std::int64_t told_us = 0;
};

struct round_outcome {
  std::size_t never = 0;  // lost, and not told
  std::size_t twice = 0;
  std::size_t late = 0;       // told after the other process had it
  std::int64_t worst_us = 0;  // how much, at most
  std::int64_t gap_us = 0;    // the longest time for which the holder's loop did not turn
  std::array<std::size_t, 5> reasons{};
};

// Turns the loop in short steps, and keeps the longest time between two of them.
class watched_turns {
 public:
  bool until(const std::function<bool()>& holds, milliseconds at_most = 60s) {
    const std::int64_t end_us = now_us() + at_most.count() * 1000;
    std::int64_t last_us = now_us();
    while (!holds()) {
      run_for(1ms);
      const std::int64_t now = now_us();
      gap_us_ = std::max(gap_us_, now - last_us);
      last_us = now;
      if (now > end_us) return false;
    }
    return true;
  }
  std::int64_t gap_us() const { return gap_us_; }

 private:
  std::int64_t gap_us_ = 0;
};

using fault = std::function<void(watched_turns& turns, std::vector<held_by_us>& all)>;

void take_all(int round, std::vector<held_by_us>& all) {
  for (std::size_t index = 0; index < all.size(); ++index) {
    held_by_us* one = &all[index];
    subject().lock(key_of(round, index), {.ttl = ttl, .wait = 60s}, [one](result<syncguard::lock> got) {
      if (got) one->held = *std::move(got);
    });
  }
  assert_true(run_until(
      [&] { return std::all_of(all.begin(), all.end(), [](const held_by_us& one) { return one.held.valid(); }); }));
  for (held_by_us& each : all) {
    each.held.on_lost([one = &each](lost why) {
      ++one->told;
      one->why = why;
      one->told_us = now_us();
    });
  }
}

round_outcome judge(const std::vector<held_by_us>& all, const waiter_report& theirs, std::int64_t gap_us) {
  round_outcome seen;
  seen.gap_us = gap_us;
  for (std::size_t index = 0; index < all.size(); ++index) {
    const held_by_us& one = all[index];
    if (one.told == 0) ++seen.never;
    if (one.told > 1) ++seen.twice;
    if (one.told == 0) continue;
    ++seen.reasons[static_cast<std::size_t>(one.why)];
    const std::int64_t after_us = one.told_us - theirs.got_us[index];
    if (theirs.got_us[index] == 0 || after_us <= 0) continue;
    ++seen.late;
    seen.worst_us = std::max(seen.worst_us, after_us);
  }
  return seen;
}

// What becomes of the records.
//
// `in_time`: the holder knows before anybody else can have the lock. Where somebody removes the record by force, no
// holder can: the server tells both sides at the same moment, and then the one asks and the other takes. How often the
// other was first is told all the same; the fence is what protects there.
struct aftermath {
  bool others_get_it = true;
  bool fences_go_on = true;
  bool in_time = true;
};

round_outcome lose_all(const char* how, int round, const client_options& options, const fault& happens,
                       aftermath then) {
  redis({"FLUSHALL"});
  make_ready_subject(options);
  warm_up();
  std::vector<held_by_us> all(lock_count);
  take_all(round, all);
  watched_turns before;
  assert_true(other.start(round));
  assert_true(before.until([] { return other.said() >= 1; }));
  for (const held_by_us& each : all) assert_true(each.held.valid() && each.told == 0);

  watched_turns turns;
  happens(turns, all);
  const auto all_told = [&] {
    return std::all_of(all.begin(), all.end(), [](const held_by_us& one) { return one.told > 0; });
  };
  turns.until(all_told, 20s);
  const std::int64_t gap_us = turns.gap_us();
  if (then.others_get_it) assert_true(turns.until([] { return other.said() >= 1 + sizeof(waiter_report); }, 90s));
  run_for(300ms);  // for those who would be told twice
  const waiter_report theirs = then.others_get_it ? other.report() : waiter_report{};
  const round_outcome seen = judge(all, theirs, gap_us);
  const auto they_got = std::count_if(theirs.got_us.begin(), theirs.got_us.end(), [](auto at) { return at > 0; });
  note(
      "%s: %zu locks, %zu told once, %zu twice, %zu never; the other got %ld, before the holder was told: %zu, by at "
      "most %.3f ms; longest gap of the holder's loop %.3f ms",
      how, all.size(), all.size() - seen.never - seen.twice, seen.twice, seen.never, static_cast<long>(they_got),
      seen.late, static_cast<double>(seen.worst_us) / 1000, static_cast<double>(seen.gap_us) / 1000);
  note("%s: unconfirmed %zu, vanished %zu, expired %zu, taken %zu; the other made %llu attempts after %llu wakes", how,
       seen.reasons[0], seen.reasons[1], seen.reasons[2], seen.reasons[3],
       static_cast<unsigned long long>(theirs.attempts), static_cast<unsigned long long>(theirs.wakes));
  if (then.others_get_it) {
    assert_int_equal(they_got, lock_count);
    for (std::size_t index = 0; index < lock_count && then.fences_go_on; ++index)
      assert_true(theirs.fence[index] > all[index].held.fence().number());
  }
  other.end();
  return seen;
}

void every_loss_is_told_in_time(const char* how, const client_options& options, const fault& happens,
                                aftermath then = {}) {
  static int round = 0;
  for (int attempt = 1;; ++attempt) {
    const round_outcome seen = lose_all(how, ++round, options, happens, then);
    assert_int_equal(seen.never, 0);
    assert_int_equal(seen.twice, 0);
    const bool responsive = seen.gap_us < std::chrono::microseconds{margin}.count();
    if (responsive && then.in_time && seen.late > 0)
      fail_msg("%s: %zu of %zu were told after another had the lock, though the loop was responsive", how, seen.late,
               lock_count);
    if (responsive) return;
    note("%s: the loop was not responsive, attempt %d", how, attempt);
    if (attempt == rounds_max) fail_msg("%s: the loop was never responsive", how);
    server().resume();
    between->resume();
  }
}

void deleted_records_are_told_once(void**) {
  every_loss_is_told_in_time("deleted", base_options(),
                             [](watched_turns&, std::vector<held_by_us>& all) {
                               std::vector<std::string> command{"DEL"};
                               for (const held_by_us& each : all) {
                                 command.push_back(lock_key(each.held.key()));
                                 command.push_back(index_key(each.held.id()));
                               }
                               redis(command);
                             },
                             {.in_time = false});
}

// The records of others live for long: the other process gets none of these.
void overwritten_records_are_told(void**) {
  every_loss_is_told_in_time("other owner", base_options(),
                             [](watched_turns&, std::vector<held_by_us>& all) {
                               std::vector<std::string> command{"MSET"};
                               for (const held_by_us& each : all) {
                                 command.push_back(lock_key(each.held.key()));
                                 command.push_back(record_of(other_id, server_now_ms() + 600'000, each.held.key()));
                               }
                               redis(command);
                             },
                             {.others_get_it = false});
}

// The records of others end soon: then the other process gets them.
void overwritten_records_that_expire_are_told_in_time(void**) {
  every_loss_is_told_in_time("other owner, expiring", base_options(), [](watched_turns&, std::vector<held_by_us>& all) {
    const std::int64_t until_ms = server_now_ms() + 300;
    std::string script = "for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[i], 'PX', 300) end";
    std::vector<std::string> command{"EVAL", script, std::to_string(all.size())};
    for (const held_by_us& each : all) command.push_back(lock_key(each.held.key()));
    for (const held_by_us& each : all) command.push_back(record_of(other_id, until_ms, each.held.key()));
    redis(command);
  });
}

void flushed_records_are_told_once(void**) {
  every_loss_is_told_in_time("FLUSHALL", base_options(),
                             [](watched_turns&, std::vector<held_by_us>&) { redis({"FLUSHALL"}); },
                             {.fences_go_on = false, .in_time = false});
}

void silent_server_is_told_in_time(void**) {
  every_loss_is_told_in_time("server stopped", base_options(), [](watched_turns& turns, std::vector<held_by_us>&) {
    server().pause();
    turns.until([] { return false; }, ttl + 20ms);  // when the last record is over, and no later
    server().resume();
  });
}

client_options relayed_options() {
  client_options options = base_options();
  options.url = "unix://" + server().folder() + "/relay.sock";
  return options;
}

// The server goes on for everybody else: they get each lock as soon as its time is over.
void silent_connection_is_told_in_time(void**) {
  every_loss_is_told_in_time("connection silent", relayed_options(),
                             [](watched_turns&, std::vector<held_by_us>&) { between->pause(); });
  between->resume();
}

void cut_connection_is_told_in_time(void**) {
  every_loss_is_told_in_time("connection cut", relayed_options(), [](watched_turns& turns, std::vector<held_by_us>&) {
    between->end();
    turns.until([] { return false; }, ttl);
    assert_true(between->start());
  });
}

#define losses_case(name) cmocka_unit_test_setup_teardown(name, set_up_losses, tear_down_losses)

}  // namespace

}  // namespace syncguard::testing

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count == 4 && std::string_view{arguments[1]} == "waiter") return be_waiter(arguments[2], std::atoi(arguments[3]));
  if (count > 1) cmocka_set_test_filter(arguments[1]);
  const CMUnitTest tests[] = {
      losses_case(deleted_records_are_told_once),
      losses_case(overwritten_records_are_told),
      losses_case(overwritten_records_that_expire_are_told_in_time),
      losses_case(flushed_records_are_told_once),
      losses_case(silent_server_is_told_in_time),
      losses_case(silent_connection_is_told_in_time),
      losses_case(cut_connection_is_told_in_time),
  };
  return cmocka_run_group_tests_name("losses", tests, start_world, stop_world);
}

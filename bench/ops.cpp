// The client against one script per operation (baseline.hpp), in one run, against one private Redis. Both are driven by
// the same workloads; every outcome is checked, in a run before the timed ones and in these as well.

#include <signal.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <syncguard/client.hpp>
#include <syncguard/uv.hpp>

#include "baseline.hpp"
#include "figures.hpp"
#include "harness.hpp"
#include "support/redis_server.hpp"
#include "support/reference/reference.hpp"

namespace {

using namespace std::chrono_literals;
using namespace syncguard;
using namespace syncguard::bench;
using testing::redis_server;
using testing::reference::reference_client;

constexpr std::size_t lanes = 256;
constexpr std::size_t held_locks = 1024;
constexpr std::uint64_t checked_operations = 2048;  // at least; every lane more than once
constexpr auto ttl = 600s;                          // longer than any run

enum class workload { pairs, extend, lookup_key, lookup_id, contended };

struct workload_name {
  workload what;
  const char* name;
};
constexpr std::array workloads{
    workload_name{workload::pairs, "ops.pairs"}, workload_name{workload::extend, "ops.extend"},
    workload_name{workload::lookup_key, "ops.lookup_key"}, workload_name{workload::lookup_id, "ops.lookup_id"},
    workload_name{workload::contended, "ops.contended"}};

struct held_lock {
  std::string key;
  lock_id id;
  key_hash id_hash;
  fence token;
  server_time expires_at;
};

// One of the two that are compared.
class contender {
 public:
  virtual ~contender() = default;
  contender(const contender&) = delete;
  contender& operator=(const contender&) = delete;

  // Starts a lane; from then on it keeps itself going.
  virtual void start(workload what, std::size_t lane) = 0;

  // Lanes that take, and give back, the locks that all workloads but the pairs are about. Each contender has its own,
  // because each writes its records in its own way.
  virtual void start_hold(std::size_t lane) = 0;
  virtual void start_let_go(std::size_t lane) = 0;

  const char* name() const noexcept { return name_; }
  const std::vector<std::optional<held_lock>>& held() const noexcept { return held_; }
  const std::string& pair_key(std::size_t lane) const noexcept { return pair_lanes_[lane].key; }

 protected:
  struct pair_lane {
    std::string key;
    std::uint64_t last_fence = 0;
  };

  explicit contender(const char* name) : name_(name), held_(held_locks) {
    for (std::size_t lane = 0; lane < lanes; ++lane) pair_lanes_.push_back({key("pair", lane)});
  }

  // Both contenders' keys have the same length.
  std::string key(const char* kind, std::size_t number) const {
    return std::string{"bench:"} + name_[0] + ':' + kind + ':' + std::to_string(1000 + number);
  }

  const char* name_;
  std::vector<pair_lane> pair_lanes_;
  std::vector<std::optional<held_lock>> held_;
};

template <class Client>
class contender_for final : public contender {
 public:
  contender_for(const char* name, Client& client, traffic& load) : contender(name), client_(client), load_(load) {}

  void start(workload what, std::size_t lane) override {
    switch (what) {
      case workload::pairs: return pair(lane);
      case workload::extend: return extend(lane);
      case workload::lookup_key: return lookup_key(lane);
      case workload::lookup_id: return lookup_id(lane);
      case workload::contended: return contend(lane);
    }
  }

  void start_hold(std::size_t at) override {
    client_.acquire(key("held", at), ttl, [this, at](result<std::optional<grant>> got) {
      if (!got) return fail(got.error());
      if (!*got) return load_.fail("a key of this benchmark is held already: by a run that was killed?");
      const grant& lock = **got;
      held_[at] = held_lock{key("held", at), lock.id, *hash_key(lock.id), lock.fence, lock.expires_at};
      if (at + lanes >= held_locks) return load_.end();
      if (load_.go_on()) start_hold(at + lanes);
    });
  }

  void start_let_go(std::size_t at) override {
    client_.release(held_[at]->id, [this, at](result<bool> done) {
      if (!done) return fail(done.error());
      if (!*done) return load_.fail("a held lock was not there any more");
      if (at + lanes >= held_locks) return load_.end();
      if (load_.go_on()) start_let_go(at + lanes);
    });
  }

 private:
  void pair(std::size_t lane) {
    client_.acquire(pair_lanes_[lane].key, ttl, [this, lane](result<std::optional<grant>> got) {
      if (!got) return fail(got.error());
      if (!*got) return load_.fail("a free key was contended");
      if (!rises((*got)->fence.number(), pair_lanes_[lane].last_fence)) return load_.fail("a fence did not rise");
      client_.release((*got)->id, [this, lane](result<bool> done) {
        if (!done) return fail(done.error());
        if (!*done) return load_.fail("a lock that was just acquired was not released");
        if (load_.go_on(2)) pair(lane);
      });
    });
  }

  void extend(std::size_t lane) {
    client_.extend(held_[lane]->id, ttl, [this, lane](result<std::optional<server_time>> got) {
      if (!got) return fail(got.error());
      if (!*got) return load_.fail("a held lock was not extended");
      if (**got < held_[lane]->expires_at) return load_.fail("an extension moved the expiry back");
      held_[lane]->expires_at = **got;
      if (load_.go_on()) extend(lane);
    });
  }

  void lookup_key(std::size_t at) {
    client_.lookup(held_[at]->key, [this, at](result<std::optional<lock_info>> got) {
      if (is_right(got, at) && load_.go_on()) lookup_key(after(at));
    });
  }

  void lookup_id(std::size_t at) {
    client_.lookup_by_id(held_[at]->id, [this, at](result<std::optional<lock_info>> got) {
      if (is_right(got, at) && load_.go_on()) lookup_id(after(at));
    });
  }

  void contend(std::size_t at) {
    client_.acquire(held_[at]->key, ttl, [this, at](result<std::optional<grant>> got) {
      if (!got) return fail(got.error());
      if (*got) return load_.fail("a lock that is held was given out again");
      if (load_.go_on()) contend(after(at));
    });
  }

  static bool rises(std::uint64_t now, std::uint64_t& last) { return now > std::exchange(last, now); }
  static std::size_t after(std::size_t at) { return (at + lanes) % held_locks; }

  bool is_right(const result<std::optional<lock_info>>& got, std::size_t at) {
    const held_lock& wanted = *held_[at];
    if (got && *got && (*got)->lock_id_hash == wanted.id_hash && (*got)->fence == wanted.token &&
        (*got)->expires_at == wanted.expires_at)
      return true;
    if (!got) fail(got.error());
    else load_.fail(*got ? "a lookup told of another lock" : "a lookup did not find a held lock");
    return false;
  }

  void fail(const error& what) { load_.fail(describe(what)); }

  Client& client_;
  traffic& load_;
};

struct settings {
  bool quick = false;
  bool baseline_only = false;
  std::string out;
  std::string socket_path;

  int rounds() const { return quick ? 9 : 31; }
  round_limit timed() const { return {.time = 150ms}; }
  round_limit warm_up() const { return {.time = quick ? 200ms : 500ms}; }
};

class benchmark {
 public:
  benchmark(const settings& wanted, const std::string& socket_path) : wanted_(wanted), socket_path_(socket_path) {}

  // Errors: said on standard error.
  bool run(uv_loop_t* loop);
  const std::vector<row>& rows() const noexcept { return rows_; }

 private:
  bool prepare(contender& who);
  bool check(contender& who, workload_name what);
  bool measure(workload_name what);
  bool compare();
  bool let_go(contender& who);
  bool disconnect(uv_loop_t* loop, client& from);

  std::optional<sample> round(contender& who, workload_name what, round_limit limit) {
    auto got = load_->run(lanes, limit, [&](std::size_t lane) { who.start(what.what, lane); });
    if (!got) complain(who, what.name, load_->failure());
    return got;
  }
  static bool complain(const contender& who, const char* step, const std::string& why) {
    std::fprintf(stderr, "bench_ops: %s, %s: %s\n", step, who.name(), why.c_str());
    return false;
  }

  const settings& wanted_;
  const std::string& socket_path_;
  reference_client judge_;
  std::unique_ptr<traffic> load_;
  std::vector<contender*> contenders_;  // the baseline first
  std::vector<row> rows_;
};

bool benchmark::run(uv_loop_t* loop) {
  std::fprintf(stderr, "connect\n");
  baseline plain{loop};
  if (!judge_.connect(socket_path_) || !plain.connect(socket_path_)) {
    const std::string& why = judge_.last_error().empty() ? plain.last_error() : judge_.last_error();
    std::fprintf(stderr, "bench_ops: %s: %s\n", socket_path_.c_str(), why.c_str());
    return false;
  }
  load_ = std::make_unique<traffic>(loop);
  contender_for<baseline> plain_contender{"baseline", plain, *load_};
  contenders_.push_back(&plain_contender);
  if (wanted_.baseline_only) return compare();

  client_options options;
  options.url = unix_url(socket_path_);
  client ours{uv(loop), std::move(options)};
  if (const auto checked = ours.check(); !checked) {
    std::fprintf(stderr, "bench_ops: %s\n", describe(checked.error()).c_str());
    return false;
  }
  contender_for<client> our_contender{"ours", ours, *load_};
  contenders_.push_back(&our_contender);
  return compare() && disconnect(loop, ours);
}

bool benchmark::compare() {
  for (contender* who : contenders_)
    if (!prepare(*who)) return false;
  for (const auto& what : workloads)
    if (!measure(what)) return false;
  for (contender* who : contenders_)
    if (!let_go(*who)) return false;
  return true;
}

// The judge, which is neither of the two, must see the same locks.
bool benchmark::prepare(contender& who) {
  std::fprintf(stderr, "hold %zu locks, %s\n", held_locks, who.name());
  if (!load_->run(lanes, {}, [&](std::size_t lane) { who.start_hold(lane); }))
    return complain(who, "hold", load_->failure());
  for (const auto& lock : who.held()) {
    const auto record = lock ? judge_.lookup_by_key(lock->key) : std::nullopt;
    if (!record || record->find(lock->id.view()) == std::string::npos ||
        record->find(lock->token.to_text().view()) == std::string::npos)
      return complain(who, "hold", "a lock that was acquired is not stored as it should be");
  }
  return true;
}

bool benchmark::check(contender& who, workload_name what) {
  std::fprintf(stderr, "%s: check %s\n", what.name, who.name());
  if (!round(who, what, {.operations = checked_operations})) return false;
  if (what.what == workload::pairs)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      if (judge_.is_locked(who.pair_key(lane))) return complain(who, what.name, "a released lock is still there");
  return true;
}

bool benchmark::measure(workload_name what) {
  for (contender* who : contenders_)
    if (!check(*who, what)) return false;
  for (contender* who : contenders_) {
    std::fprintf(stderr, "%s: warm up %s\n", what.name, who->name());
    if (!round(*who, what, wanted_.warm_up())) return false;
  }
  row& line = rows_.emplace_back();
  line.name = what.name;
  for (int number = 1; number <= wanted_.rounds(); ++number) {
    for (contender* who : contenders_) {
      const auto got = round(*who, what, wanted_.timed());
      if (!got) return false;
      (who == contenders_.front() ? line.baseline : line.ours).rounds.push_back(*got);
    }
    if (number % 5 == 0 || number == wanted_.rounds())
      std::fprintf(stderr, "%s: round %d of %d, so far %.0f op/s, baseline %.0f op/s\n", what.name, number,
                   wanted_.rounds(), line.ours.operations_per_s(), line.baseline.operations_per_s());
  }
  return true;
}

bool benchmark::let_go(contender& who) {
  if (!load_->run(lanes, {}, [&](std::size_t lane) { who.start_let_go(lane); }))
    return complain(who, "release", load_->failure());
  return true;
}

bool benchmark::disconnect(uv_loop_t* loop, client& from) {
  bool closed = false;
  from.close([&closed, loop](const result<void>&) {
    closed = true;
    uv_stop(loop);
  });
  uv_run(loop, UV_RUN_DEFAULT);
  if (!closed) std::fprintf(stderr, "bench_ops: the client did not close\n");
  return closed;
}

constexpr const char* usage =
    "usage: bench_ops [--quick] [--baseline-only] [--out FILE] [--socket PATH]\n"
    "\n"
    "  --quick          fewer and shorter rounds\n"
    "  --baseline-only  leave the client out\n"
    "  --out FILE       write the figures to FILE, as JSON\n"
    "  --socket PATH    use the Redis at this unix socket, and leave some fence counters there (syncguard:fence:*);\n"
    "                   without it, a private one is started\n";

// Returns: nothing where the program should end with exit_usage.
std::optional<settings> parse(int count, char** arguments) {
  settings wanted;
  const auto refuse = [](const char* why, std::string_view what) {
    std::fprintf(stderr, "bench_ops: %s: %.*s\n%s", why, static_cast<int>(what.size()), what.data(), usage);
    return std::nullopt;
  };
  for (int at = 1; at < count; ++at) {
    const std::string_view argument = arguments[at];
    if (argument == "--quick") {
      wanted.quick = true;
    } else if (argument == "--baseline-only") {
      wanted.baseline_only = true;
    } else if (argument == "--out" || argument == "--socket") {
      if (at + 1 == count || *arguments[at + 1] == '\0') return refuse("a value is missing after", argument);
      (argument == "--out" ? wanted.out : wanted.socket_path) = arguments[++at];
    } else {
      return refuse("unknown argument", argument);
    }
  }
  if (wanted.baseline_only && !wanted.out.empty()) return refuse("nothing to write with --baseline-only", "--out");
  return wanted;
}

}  // namespace

int main(int count, char** arguments) {
  const auto wanted = parse(count, arguments);
  if (!wanted) return exit_usage;
  signal(SIGPIPE, SIG_IGN);
  if (!wanted->out.empty() && !is_writable("bench_ops", wanted->out)) return exit_failed;

  redis_server server;
  if (wanted->socket_path.empty() && !server.start()) return exit_failed;
  const std::string& socket_path = wanted->socket_path.empty() ? server.socket_path() : wanted->socket_path;

  uv_loop_t loop;
  uv_loop_init(&loop);
  std::vector<row> rows;
  bool fine = false;
  {
    benchmark all{*wanted, socket_path};
    fine = all.run(&loop);
    rows = all.rows();
  }
  uv_run(&loop, UV_RUN_NOWAIT);
  if (uv_loop_close(&loop) != 0) std::fprintf(stderr, "bench_ops: something was left in the loop\n");
  if (!fine) return exit_failed;

  print_table(rows);
  if (wanted->out.empty() || write_json(wanted->out, rows)) return 0;
  std::fprintf(stderr, "bench_ops: %s could not be written\n", wanted->out.c_str());
  return exit_failed;
}

// The cut matrix: the connection is cut behind every byte of what each operation says and is told, and of what a
// connection says and is told when it introduces itself, in three ways, against a real redis-server. Built for each
// loop.
//
// After each cut: the operation has completed once, what it told agrees with what the server holds, the client works
// again by itself, and no lock is left for nobody. Locks live for a minute here, far longer than a case waits: what is
// gone by the end of a case was given back, and did not just run out.

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "faults/cut_world.hpp"

namespace syncguard::testing {

namespace {

constexpr milliseconds lock_ttl = 60s;

// How long a client waits for a connection that fell silent. Whatever a busy machine lets run out of that besides is
// tried again.
constexpr milliseconds silence_max = 250ms;
constexpr milliseconds introduction_max = 60ms;

enum class act : std::uint8_t {
  acquire,
  release,
  extend,
  is_locked,
  lookup,
  lookup_by_id,
  lock_first,     // lock() of a client that is not told of changes yet
  lock_watched,   // lock() of one that is: it goes by the connection on which the server tells
  extend_watched  // of a lock that is held; a heartbeat is the same
};
constexpr std::array all_acts{act::acquire,      act::release,    act::extend,       act::is_locked,     act::lookup,
                              act::lookup_by_id, act::lock_first, act::lock_watched, act::extend_watched};
constexpr std::array act_names{"acquire",      "release",     "extend",        "is_locked",      "lookup",
                               "lookup by id", "lock, first", "lock, watched", "extend, watched"};

bool needs_watching(act what) { return what == act::lock_watched || what == act::extend_watched; }
bool needs_grant(act what) {
  return what == act::release || what == act::extend || what == act::is_locked || what == act::lookup ||
         what == act::lookup_by_id;
}
bool only_reads(act what) { return what == act::is_locked || what == act::lookup || what == act::lookup_by_id; }

struct ending {
  int calls = 0;
  std::optional<error> failure;
  bool hoped_for = false;  // granted, released, extended, held, found
  std::string id;          // of what was acquired
  std::uint64_t fence = 0;
  syncguard::lock held;
};
using shared_ending = std::shared_ptr<ending>;

// One case: an operation, and where it is cut.
struct attempt {
  act what{};
  cut where{};
  seat* at = nullptr;
  std::string key{};
  std::string id{};         // of the lock that was there before
  syncguard::lock owned{};  // the same, of extend_watched
  shared_ending end{};
  int tries = 0;
};

template <class Outcome>
void note_end(const shared_ending& end, const Outcome& outcome, bool hoped_for) {
  if (++end->calls > 1) breach("an operation completed twice");
  if (!outcome) end->failure = outcome.error();
  end->hoped_for = hoped_for;
}

auto for_bool(const shared_ending& end) {
  return [end](const result<bool>& outcome) { note_end(end, outcome, outcome && *outcome); };
}

template <class T>
auto for_optional(const shared_ending& end) {
  return [end](const result<std::optional<T>>& outcome) { note_end(end, outcome, outcome && outcome->has_value()); };
}

auto for_grant(const shared_ending& end) {
  return [end](const result<std::optional<grant>>& outcome) {
    const bool got = outcome && outcome->has_value();
    note_end(end, outcome, got);
    if (!got) return;
    end->id = (*outcome)->id.view();
    end->fence = (*outcome)->fence.number();
  };
}

auto for_lock(const shared_ending& end) {
  return [end](result<syncguard::lock> outcome) {
    note_end(end, outcome, outcome.has_value());
    if (!outcome) return;
    end->id = outcome->id().view();
    end->fence = outcome->fence().number();
    end->held = *std::move(outcome);
  };
}

void start_act(attempt& one) {
  one.end = std::make_shared<ending>();
  client& by = *one.at->own;
  switch (one.what) {
    case act::acquire: by.acquire(one.key, lock_ttl, for_grant(one.end)); break;
    case act::release: by.release(one.id, for_bool(one.end)); break;
    case act::extend: by.extend(one.id, lock_ttl, for_optional<server_time>(one.end)); break;
    case act::is_locked: by.is_locked(one.key, for_bool(one.end)); break;
    case act::lookup: by.lookup(one.key, for_optional<lock_info>(one.end)); break;
    case act::lookup_by_id: by.lookup_by_id(one.id, for_optional<lock_info>(one.end)); break;
    case act::lock_first:
    case act::lock_watched: by.lock(one.key, {.ttl = lock_ttl, .wait = steadfast}, for_lock(one.end)); break;
    case act::extend_watched: one.owned.extend(lock_ttl, for_optional<server_time>(one.end)); break;
  }
  if (one.end->calls > 0) breach("a callback ran inside the call that started its operation");
}

[[noreturn]] void wrong(const attempt& one, const char* what) {
  print_error("%s, %s at %zu of the %s: %s\n", act_names[static_cast<std::size_t>(one.what)], name_of(one.where.how),
              one.where.offset, name_of(one.where.where), what);
  if (one.end != nullptr && one.end->failure) print_error("%s\n", describe(*one.end->failure).c_str());
  _fail(__FILE__, __LINE__);
  std::abort();
}

using attempts = std::vector<attempt>;

// Starts something for each, and again where a time-out that is meant for stalls has ended it.
template <class Start>
void insist(attempts& all, const char* otherwise, Start start_one) {
  std::vector<shared_ending> ends(all.size());
  const auto settle = [&](std::size_t index) {
    shared_ending& end = ends[index];
    if (end != nullptr && end->calls > 0 && !end->failure) return true;
    if (end != nullptr && end->calls == 0) return false;
    if (end != nullptr && all[index].where.how != fate::stall) {
      all[index].end = end;
      wrong(all[index], otherwise);
    }
    end = std::make_shared<ending>();
    start_one(all[index], end);
    return false;
  };
  const auto settle_all = [&] {
    bool settled = true;
    for (std::size_t index = 0; index < all.size(); ++index) settled = settle(index) && settled;
    return settled;
  };
  if (!run_until(settle_all, round_patience)) wrong(all.front(), otherwise);
}

void await_ready(attempts& all) {
  const auto ready = [](const attempt& one) {
    return one.at->own->state() == connection_state::ready &&
           (!needs_watching(one.what) || one.at->own->stats().watching);
  };
  if (!run_until([&] { return std::all_of(all.begin(), all.end(), ready); }, round_patience))
    wrong(*std::find_if_not(all.begin(), all.end(), ready), "the client did not become ready");
}

// A client for each, and the lock that the operation is about.
void prepare(attempts& all) {
  attempts unwatched;
  for (std::size_t index = 0; index < all.size(); ++index) {
    attempt& one = all[index];
    one.at = &cuts().seats[index];
    const milliseconds timeout = one.where.how == fate::stall ? silence_max : 0ms;
    // What the seat had before may be told of changes already.
    if (one.at->own == nullptr || one.what == act::lock_first) cuts().reseat(*one.at, timeout, timeout);
    one.key = cuts().fresh_key();
    if (needs_watching(one.what) && !one.at->own->stats().watching) unwatched.push_back({one.what, one.where, one.at});
  }
  insist(unwatched, "the first lock was not had", [](attempt& one, const shared_ending& end) {
    one.at->own->lock(cuts().fresh_key(), {.ttl = lock_ttl, .wait = steadfast},
                      [end](const result<syncguard::lock>& outcome) { note_end(end, outcome, true); });
  });
  await_ready(all);

  attempts granted;
  attempts held;
  for (attempt& one : all) {
    if (needs_grant(one.what)) granted.push_back({one.what, one.where, one.at});
    if (one.what == act::extend_watched) held.push_back({one.what, one.where, one.at});
  }
  const auto acquire = [](attempt& one, const shared_ending& end) {
    one.key = cuts().fresh_key();
    one.end = end;
    one.at->own->acquire(one.key, lock_ttl, for_grant(end));
  };
  insist(granted, "the lock to work with was not had", acquire);
  const auto lock = [](attempt& one, const shared_ending& end) {
    one.key = cuts().fresh_key();
    one.end = end;
    one.at->own->lock(one.key, {.ttl = lock_ttl, .wait = steadfast}, for_lock(end));
  };
  insist(held, "the lock to hold was not had", lock);
  await_ready(all);
  std::size_t next_granted = 0;
  std::size_t next_held = 0;
  for (attempt& one : all) {
    if (needs_grant(one.what)) {
      one.key = granted[next_granted].key;
      one.id = granted[next_granted++].end->id;
    } else if (one.what == act::extend_watched) {
      one.key = held[next_held].key;
      one.id = held[next_held].end->id;
      one.owned = std::move(held[next_held++].end->held);
    }
  }
}

// Whether what was told agrees with what the server holds.
void judge(const attempt& one) {
  const ending& end = *one.end;
  const std::string owner = cuts().owner_of(one.key);
  const bool stalled = one.where.how == fate::stall;
  if (end.calls != 1) wrong(one, "the operation did not complete once");
  if (end.failure) {
    const bool unknown = end.failure->outcome_unknown();
    if (one.what == act::lock_first || one.what == act::lock_watched) wrong(one, "the lock was not had");
    if (!stalled && one.what != act::release && one.what != act::extend_watched) wrong(one, "it was not sent again");
    if (stalled && end.failure->code() != error_code::network_timeout) wrong(one, "the silence was no time-out");
    if (unknown == only_reads(one.what)) wrong(one, "whether it can be known what became of it is told wrongly");
  } else if (!end.hoped_for) {
    wrong(one, "the answer is not true");
  }
  switch (one.what) {
    case act::acquire:
    case act::lock_first:
    case act::lock_watched:
      if (!end.failure && (owner != end.id || owner.empty())) wrong(one, "the server has no such lock");
      // What lock() cannot be sure of it gives back, and asks anew: on the watched connection, and after silence.
      if (!end.failure && end.fence > 1 && one.what != act::lock_watched && !stalled)
        wrong(one, "it was acquired more than once");
      if (one.what != act::acquire && !end.held.valid()) wrong(one, "the lock is not valid");
      break;
    case act::release:
      if (!end.failure && !owner.empty()) wrong(one, "the server has the lock still");
      break;
    default:
      if (owner != one.id) wrong(one, "the lock was harmed");
  }
  if (one.what == act::extend_watched && !one.owned.valid()) wrong(one, "the lock that was held is lost");
}

// What a case holds is given back, by the same client: so it works again.
void recover(attempts& all) {
  insist(all, "the client did not recover", [](attempt& one, const shared_ending& end) {
    one.at->own->acquire(cuts().fresh_key(), lock_ttl, [end, by = one.at->own.get()](const auto& outcome) {
      // Released with the next breath: this is what the case is about.
      if (outcome && outcome->has_value()) by->release((*outcome)->id, for_bool(end));
      else note_end(end, outcome, false);
    });
  });
  std::vector<std::string> keys;
  for (attempt& one : all) {
    keys.push_back(one.key);
    one.owned = {};
    one.end->held = {};
  }
  insist(all, "a lock was not given back", [](attempt& one, const shared_ending& end) {
    const std::string& id = one.end->id.empty() ? one.id : one.end->id;
    if (id.empty()) end->calls = 1;
    else one.at->own->release(id, for_bool(end));
  });
  // What was acquired for nobody is given back in the background.
  if (!run_until([&] { return cuts().held_among(keys) == 0; }, round_patience))
    wrong(all.front(), "of this or of another case of its round, a lock was left for nobody");
}

// One case on each seat. Returns those whose connection was not cut where it should have been.
attempts run_round(attempts all) {
  prepare(all);
  for (attempt& one : all) {
    one.at->way->take_made();
    one.at->way->cut_present(needs_watching(one.what), one.where);  // false: missed, for the connection just went
  }
  for (attempt& one : all) start_act(one);
  const auto done = [](const attempt& one) { return one.end->calls > 0; };
  if (!run_until([&] { return std::all_of(all.begin(), all.end(), done); }, round_patience))
    wrong(*std::find_if_not(all.begin(), all.end(), done), "the operation did not complete");
  attempts missed;
  for (const attempt& one : all) {
    if (one.at->way->take_made().empty())
      missed.push_back({.what = one.what, .where = one.where, .tries = one.tries + 1});
    judge(one);
  }
  recover(all);
  return missed;
}

// How much an operation says and is told, where nothing is cut.
traffic measure(act what) {
  attempts one(2);
  one[0].what = one[1].what = what;
  one.pop_back();
  for (int run = 0; run < 2; ++run) {  // the first brings a question for the server's role along
    prepare(one);
    one[0].at->way->count_present(needs_watching(what));
    start_act(one[0]);
    if (!run_until([&] { return one[0].end->calls > 0; })) wrong(one[0], "the operation did not complete");
    const traffic seen = one[0].at->way->counted(needs_watching(what));
    judge(one[0]);
    recover(one);
    if (run == 1 || what == act::lock_first) return seen;
  }
  return {};
}

constexpr int tries_max = 10;

void cut_every_operation(fate how) {
  attempts waiting;
  std::size_t total = 0;
  for (const act what : all_acts) {
    const traffic size = measure(what);
    note("%s: %zu bytes of request, %zu of reply", act_names[static_cast<std::size_t>(what)], size.request, size.reply);
    assert_true(size.request > 0 && size.reply > 0);
    for (const direction where : {direction::request, direction::reply})
      for (std::size_t offset = 0; offset <= (where == direction::request ? size.request : size.reply); ++offset)
        waiting.push_back({.what = what, .where = {where, offset, how}});
  }
  for (seat& each : cuts().seats) each.own.reset();
  total = waiting.size();
  while (!waiting.empty()) {
    const std::size_t count = std::min(waiting.size(), cuts().seats.size());
    attempts round{std::make_move_iterator(waiting.end() - static_cast<std::ptrdiff_t>(count)),
                   std::make_move_iterator(waiting.end())};
    waiting.resize(waiting.size() - count);
    for (attempt& missed : run_round(std::move(round))) {
      if (missed.tries == tries_max) wrong(missed, "the connection could not be cut there");
      waiting.push_back(std::move(missed));
    }
  }
  nothing_is_left();
  note("%zu cases of operations, each cut by a %s", total, name_of(how));
}

// --- introductions ---------------------------------------------------------------------------------------------------

// The connections of one client are cut one after the other, each at another byte; then one is let through. Each cut is
// followed by the next connection, the last by an operation that succeeds.
constexpr std::size_t chain_max = 24;

struct chain {
  attempt one;  // the operation that waits for all of this
  std::vector<cut> wanted;
};

void start_chain(chain& which, seat& at, bool watched) {
  attempt& one = which.one;
  one.at = &at;
  one.what = watched ? act::lock_first : act::acquire;
  one.where = which.wanted.front();
  one.key = cuts().fresh_key();
  at.way->take_made();
  const auto queue = [&] {
    for (const cut& each : which.wanted) at.way->cut_next(each);
  };
  if (!watched) queue();
  cuts().reseat(at, 0ms, one.where.how == fate::stall ? introduction_max : 0ms);
  if (watched && !run_until([&] { return at.own->state() == connection_state::ready; }, round_patience))
    wrong(one, "the client did not become ready");
  if (watched) queue();
  start_act(one);
}

bool chain_is_over(const chain& which, bool watched) {
  return which.one.end->calls > 0 && (!watched || which.one.at->own->stats().watching);
}

bool same(const cut& left, const cut& right) { return left.where == right.where && left.offset == right.offset; }

// Returns the cuts that were not made: the stream was shorter, or a connection ended by itself on a busy machine.
std::vector<cut> run_chains(std::vector<chain>& all, bool watched) {
  for (std::size_t index = 0; index < all.size(); ++index) start_chain(all[index], cuts().seats[index], watched);
  const auto over = [&](const chain& each) { return chain_is_over(each, watched); };
  if (!run_until([&] { return std::all_of(all.begin(), all.end(), over); }, round_patience))
    wrong(std::find_if_not(all.begin(), all.end(), over)->one, "no connection came up in the end");
  std::vector<cut> missed;
  attempts ones;
  for (chain& each : all) {
    const std::vector<cut> made = each.one.at->way->take_made();
    for (const cut& wanted : each.wanted)
      if (std::none_of(made.begin(), made.end(), [&](const cut& one) { return same(one, wanted); }))
        missed.push_back(wanted);
    judge(each.one);
    ones.push_back(std::move(each.one));
  }
  recover(ones);
  return missed;
}

// What a connection says and is told before it is of use.
traffic measure_introduction(bool watched) {
  seat& at = cuts().seats.front();
  cuts().reseat(at, 0ms, 0ms);
  assert_true(run_until([&] { return at.own->state() == connection_state::ready; }));
  if (!watched) return at.way->counted(false);
  const auto end = std::make_shared<ending>();
  at.own->lock(cuts().fresh_key(), {.ttl = lock_ttl},
               [end](result<syncguard::lock> outcome) { note_end(end, outcome, outcome.has_value()); });
  assert_true(run_until([&] { return end->calls > 0; }));
  assert_true(run_until([&] { return at.own->stats().watching; }));
  return at.way->counted(true);
}

void cut_introduction(bool watched, fate how) {
  const traffic size = measure_introduction(watched);
  const std::size_t stride = long_stride();
  // Silence behind the last byte of all is what an operation meets at its first byte, and is among its cases.
  const std::size_t reply_end = how == fate::stall && !watched ? size.reply - 1 : size.reply;
  std::vector<cut> waiting;
  for (std::size_t offset = 0; offset <= size.request; offset += stride)
    waiting.push_back({direction::request, offset, how});
  for (std::size_t offset = 0; offset <= reply_end; ++offset) waiting.push_back({direction::reply, offset, how});
  const std::size_t total = waiting.size();
  for (int tries = 0; tries < tries_max && !waiting.empty(); ++tries) {
    std::vector<cut> missed;
    while (!waiting.empty()) {
      std::vector<chain> round;
      while (!waiting.empty() && round.size() < cuts().seats.size()) {
        const std::size_t count = std::min(waiting.size(), chain_max);
        round.push_back({{}, {waiting.end() - static_cast<std::ptrdiff_t>(count), waiting.end()}});
        waiting.resize(waiting.size() - count);
      }
      for (const cut& each : run_chains(round, watched)) missed.push_back(each);
    }
    waiting = std::move(missed);
  }
  // The server's numbers have more digits at one time than at another.
  for (const cut& each : waiting)
    if (each.where == direction::request || each.offset + 8 < size.reply)
      fail_msg("the introduction could not be cut at %zu of the %s", each.offset, name_of(each.where));
  nothing_is_left();
  note("introduction%s: %zu bytes of request, %zu of reply: %zu cases, each cut by a %s", watched ? ", watched" : "",
       size.request, size.reply, total - waiting.size(), name_of(how));
  if (stride > 1) note("requests were cut at every %zuth byte only: sanitizers make this slow", stride);
}

void operations_survive_a_reset_at_every_byte(void**) { cut_every_operation(fate::reset); }
void operations_survive_a_close_at_every_byte(void**) { cut_every_operation(fate::close); }
void operations_survive_silence_at_every_byte(void**) { cut_every_operation(fate::stall); }
void introduction_survives_a_reset_at_every_byte(void**) { cut_introduction(false, fate::reset); }
void introduction_survives_a_close_at_every_byte(void**) { cut_introduction(false, fate::close); }
void introduction_survives_silence_at_every_byte(void**) { cut_introduction(false, fate::stall); }
void watched_introduction_survives_a_reset_at_every_byte(void**) { cut_introduction(true, fate::reset); }
void watched_introduction_survives_a_close_at_every_byte(void**) { cut_introduction(true, fate::close); }
void watched_introduction_survives_silence_at_every_byte(void**) { cut_introduction(true, fate::stall); }

#define cut_case(name) cmocka_unit_test_setup_teardown(name, set_up_cuts, tear_down_cuts)

}  // namespace

}  // namespace syncguard::testing

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count > 1) cmocka_set_test_filter(arguments[1]);
  const CMUnitTest tests[] = {
      cut_case(operations_survive_a_reset_at_every_byte),
      cut_case(operations_survive_a_close_at_every_byte),
      cut_case(operations_survive_silence_at_every_byte),
      cut_case(introduction_survives_a_reset_at_every_byte),
      cut_case(introduction_survives_a_close_at_every_byte),
      cut_case(introduction_survives_silence_at_every_byte),
      cut_case(watched_introduction_survives_a_reset_at_every_byte),
      cut_case(watched_introduction_survives_a_close_at_every_byte),
      cut_case(watched_introduction_survives_silence_at_every_byte),
  };
  return cmocka_run_group_tests_name("cut_matrix", tests, start_world, stop_world);
}

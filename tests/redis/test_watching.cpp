// The link on which the server tells of changes, driven without a client. Built for each loop.

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Before CMocka, whose macro fail() has no arguments.
#include "redis/link.hpp"

#include "contract/stored.hpp"
#include "redis/event_loop.hpp"
#include "redis/reply_arena.hpp"
#include "redis/url.hpp"
#include "support/fake_server.hpp"

namespace syncguard::testing {

namespace {

using engine::operation_kind;
using engine::verdict;

const std::string own{own_id};
const std::string other{other_id};

// One link, and everything that it has told.
struct lane final : redis::link_owner {
  std::unique_ptr<redis::link> link;
  bool up = false;
  int ups = 0;
  int losses = 0;
  std::optional<error> why;
  bool refused = false;
  int policies = 0;
  int scripts_missed = 0;
  std::vector<std::string> told;  // keys; `*`: all
  std::vector<engine::outcome> outcomes;

  void link_up() override {
    up = true;
    ++ups;
  }

  void link_lost(const error& cause, bool for_good) override {
    up = false;
    ++losses;
    why = cause;
    refused = for_good;
  }

  void unsafe_policy(std::string_view) override { ++policies; }

  void batch_answered(engine::batch& which, engine::batch_answer& answer) override {
    for (std::size_t index = 0; index < which.count; ++index)
      answer.read(index, *which.operations[index], outcomes.emplace_back());
  }

  // As the engine does it: the scripts first, then the same batch once more.
  void batch_without_script(engine::batch& which) override {
    ++scripts_missed;
    link->load_scripts();
    link->send(which);
    link->want_turn_end();
  }

  void invalidated(std::string_view lock_key) override { told.emplace_back(lock_key); }
  void invalidated_all() override { told.emplace_back("*"); }
};

// What a client does for its links, as far as these tests need it.
struct host final : redis::loop_sink {
  std::unique_ptr<redis::event_loop> loop = loop_for_client().take();
  protocol::key_space keys = *protocol::key_space::make("syncguard");
  std::array<lane, 2> lanes;
  engine::operation item;
  engine::batch batch;

  host() { loop->open(*this); }

  void on_turn_end() override {
    for (lane& each : lanes) {
      if (each.link == nullptr) continue;
      each.link->flush();
      each.link->end_turn();
    }
    sync_timer();
  }

  void on_timer() override {
    for (lane& each : lanes)
      if (each.link != nullptr) each.link->run_timer(redis::now_us() / 1000);
    sync_timer();
  }

  void on_resolved(std::vector<std::string> addresses, std::string_view why) override {
    for (lane& each : lanes)
      if (each.link != nullptr) each.link->resolved(addresses, why);
    sync_timer();
  }

  void sync_timer() {
    std::optional<std::int64_t> next;
    for (const lane& each : lanes) {
      const auto due = each.link != nullptr ? each.link->next_wake_ms() : std::nullopt;
      if (due && (!next || *due < *next)) next = due;
    }
    if (next) loop->arm(*next - redis::now_us() / 1000);
  }
};

std::unique_ptr<host> subject_host;
std::unique_ptr<fake_server> fake;

int set_up_host(void** state) {
  if (set_up(state) != 0) return -1;
  subject_host = std::make_unique<host>();
  return 0;
}

int tear_down_host(void** state) {
  subject_host.reset();
  fake.reset();
  return tear_down(state);
}

lane& watching() { return subject_host->lanes[0]; }
lane& second() { return subject_host->lanes[1]; }

void make_link(lane& where, const std::string& url, bool watch = true) {
  redis::link_options options;
  options.where = *redis::parse_url(url);
  options.client_name = "watching";
  options.reconnect_min_ms = 10;
  options.reconnect_max_ms = 3'600'000;
  options.watch = watch;
  where.link = std::make_unique<redis::link>(std::move(options), subject_host->keys, *subject_host->loop, where);
}

void start_link(lane& where, const std::string& url, bool watch = true) {
  make_link(where, url, watch);
  where.link->start();
  subject_host->sync_timer();
}

bool run_serving_until(const std::function<bool()>& holds) {
  return run_until([&] {
    if (fake != nullptr) fake->serve();
    return holds();
  });
}

bool comes_up(lane& where) {
  return run_serving_until([&] { return where.up; });
}

void start_watching(const std::string& url = unix_url()) {
  start_link(watching(), url);
  assert_true(comes_up(watching()));
}

// Starts one mutation.
void send(operation_kind kind, const std::string& key, const std::string& id, std::int64_t ttl_ms = 60'000) {
  engine::operation& item = subject_host->item;
  item.kind = kind;
  item.key.assign(key);
  item.id = *lock_id::parse(id);
  item.ttl_ms = ttl_ms;
  engine::batch& batch = subject_host->batch;
  batch.kind = engine::travel_class::mutation;
  batch.count = 1;
  batch.operations[0] = &item;
  watching().link->send(batch);
  watching().link->want_turn_end();
}

engine::outcome await_outcome() {
  auto& outcomes = watching().outcomes;
  assert_true(run_serving_until([&] { return !outcomes.empty(); }));
  engine::outcome first = std::move(outcomes.front());
  outcomes.clear();
  return first;
}

void mutate(operation_kind kind, const std::string& id, verdict wanted, std::int64_t ttl_ms = 60'000) {
  send(kind, "k", id, ttl_ms);
  assert_int_equal(static_cast<int>(await_outcome().what), static_cast<int>(wanted));
}

bool is_told(const std::string& what) {
  const auto& told = watching().told;
  return run_serving_until([&] { return std::find(told.begin(), told.end(), what) != told.end(); });
}

// The server has answered once more, so whatever it told before that has arrived.
void catch_up() {
  send(operation_kind::inspect, "something else", own);
  await_outcome();
}

void assert_nothing_told() {
  catch_up();
  assert_true(watching().told.empty());
}

void remove_lock() { assert_int_equal(redis({"DEL", lock_key("k")}).integer, 1); }

void comes_up_by_name_and_tells_no_policy(void**) {
  server().config_set("maxmemory-policy", "allkeys-lru");
  make_link(watching(), unix_url());
  assert_true(watching().link->idle());
  watching().link->start();
  assert_false(watching().link->idle());
  assert_true(comes_up(watching()));
  assert_true(is_connected("watching"));
  assert_int_equal(watching().policies, 0);
  assert_int_equal(calls_of("hello"), 1);
  assert_int_equal(calls_of("client|tracking"), 1);
  assert_false(watching().link->idle());
  watching().link->stop();
  assert_true(watching().link->idle());
}

void plain_link_asks_for_nothing_of_that(void**) {
  start_link(watching(), unix_url(), false);
  assert_true(comes_up(watching()));
  mutate(operation_kind::acquire, own, verdict::acquired);
  remove_lock();
  assert_nothing_told();
  for (const char* command : {"hello", "client|tracking", "client|caching"}) assert_int_equal(calls_of(command), 0);
}

void outcomes_bring_the_servers_time_and_the_holders_fence(void**) {
  start_watching();
  const std::int64_t before = server_now_ms();
  send(operation_kind::acquire, "k", own);
  const auto taken = await_outcome();
  assert_true(before <= taken.server_now_ms && taken.server_now_ms <= server_now_ms());
  send(operation_kind::acquire, "k", other);
  const auto contended = await_outcome();
  assert_true(contended.what == verdict::contended);
  assert_true(contended.token && contended.token->number() == taken.token->number());
  assert_int_equal(contended.expires_at_ms, taken.expires_at_ms);
  assert_true(contended.server_now_ms >= taken.server_now_ms);
}

void holder_without_a_fence_is_contended_without_one(void**) {
  start_watching();
  store(other, R"({"lockId":")" + other + R"(","expiresAt":)" + std::to_string(server_now_ms() + 30'000) +
                   R"(,"createdAt":1,"key":"k"})");
  send(operation_kind::acquire, "k", own);
  const auto contended = await_outcome();
  assert_true(contended.what == verdict::contended);
  assert_false(contended.token.has_value());
}

void contended_lock_is_told_of_when_it_is_deleted(void**) {
  start_watching();
  store_expiring(other, 60s);
  mutate(operation_kind::acquire, own, verdict::contended);
  assert_nothing_told();
  remove_lock();
  assert_true(is_told(lock_key("k")));
}

void contended_lock_is_told_of_when_it_expires(void**) {
  start_watching();
  store(other, record_of(other, server_now_ms() + 60'000), "k", 100ms);
  mutate(operation_kind::acquire, own, verdict::contended);
  assert_true(is_told(lock_key("k")));
}

void acquired_lock_is_told_of_when_it_is_deleted(void**) {
  start_watching();
  mutate(operation_kind::acquire, own, verdict::acquired);
  assert_nothing_told();
  remove_lock();
  assert_true(is_told(lock_key("k")));
}

void extended_lock_is_told_of_when_it_is_deleted(void**) {
  start_watching();
  mutate(operation_kind::acquire, own, verdict::acquired);
  mutate(operation_kind::extend, own, verdict::extended);
  assert_nothing_told();
  remove_lock();
  assert_true(is_told(lock_key("k")));
}

void extended_lock_is_told_of_when_it_expires(void**) {
  start_watching();
  mutate(operation_kind::acquire, own, verdict::acquired);
  mutate(operation_kind::extend, own, verdict::extended, 100);
  assert_true(is_told(lock_key("k")));
}

void lock_with_a_long_key_is_told_of_by_its_storage_key(void**) {
  start_watching();
  subject_host->keys = *protocol::key_space::make(std::string(900, 'p'));
  const std::string key(500, 'k');
  send(operation_kind::acquire, key, own);
  assert_true(await_outcome().what == verdict::acquired);
  send(operation_kind::extend, key, own);
  assert_true(await_outcome().what == verdict::extended);
  protocol::storage_key_buffer out;
  const std::string stored{subject_host->keys.lock_key(key, out)};
  assert_int_equal(redis({"DEL", stored}).integer, 1);
  assert_true(is_told(stored));
}

void everything_is_told_of_when_all_is_flushed(void**) {
  for (const char* command : {"FLUSHALL", "FLUSHDB"}) {
    watching().told.clear();
    start_watching();
    mutate(operation_kind::acquire, own, verdict::acquired);
    redis({command});
    assert_true(is_told("*"));
    watching().link.reset();
    watching().up = false;
  }
}

void what_is_done_on_the_link_itself_is_not_told(void**) {
  start_watching();
  mutate(operation_kind::acquire, own, verdict::acquired);
  mutate(operation_kind::extend, own, verdict::extended);
  mutate(operation_kind::release, own, verdict::released);
  mutate(operation_kind::acquire, own, verdict::acquired);
  assert_nothing_told();
}

void every_batch_has_its_own_wish_before_it(void**) {
  start_watching();
  const long long before = calls_of("client|caching");
  mutate(operation_kind::acquire, own, verdict::acquired);
  mutate(operation_kind::extend, own, verdict::extended);
  mutate(operation_kind::release, own, verdict::released);
  assert_int_equal(calls_of("client|caching") - before, 3);
}

void lock_is_watched_though_the_scripts_had_to_be_loaded_again(void**) {
  start_watching();
  assert_true(redis({"SCRIPT", "FLUSH"}).is_text("OK"));
  mutate(operation_kind::acquire, own, verdict::acquired);
  assert_int_equal(watching().scripts_missed, 1);
  assert_nothing_told();
  remove_lock();
  assert_true(is_told(lock_key("k")));
}

void other_database_and_user_are_watched_too(void**) {
  redis({"ACL", "SETUSER", "guest", "on", ">secret", "~*", "+@all"});
  start_watching(tcp_url("guest:secret@") + "/3");
  mutate(operation_kind::acquire, own, verdict::acquired);
  mutate(operation_kind::release, own, verdict::released);
}

// Refused, and not tried again at once.
error is_refused(error_code wanted) {
  assert_true(run_serving_until([] { return watching().losses > 0; }));
  run_for(100ms);
  assert_int_equal(watching().losses, 1);
  assert_int_equal(watching().ups, 0);
  assert_true(watching().refused);
  note("%s", describe(*watching().why).c_str());
  assert_true(watching().why->code() == wanted);
  assert_false(watching().why->cause().empty());
  return *watching().why;
}

// Those that locks need, and these two.
void least_rights_suffice(void**) {
  redis({"ACL", "SETUSER", "guest", "reset", "on", ">secret", "~syncguard:*", "+evalsha", "+script|load", "+get",
         "+mget", "+time", "+pttl", "+set", "+incr", "+pexpire", "+del", "+client|tracking", "+client|caching"});
  start_watching(tcp_url("guest:secret@"));
  mutate(operation_kind::acquire, own, verdict::acquired);
  mutate(operation_kind::extend, own, verdict::extended);
  remove_lock();
  assert_true(is_told(lock_key("k")));
}

void missing_right_refuses_the_link(void**) {
  for (const char* right : {"-client|tracking", "-client|caching"}) {
    watching().losses = 0;
    redis({"ACL", "SETUSER", "guest", "reset", "on", ">secret", "~*", "+@all", right});
    start_link(watching(), tcp_url("guest:secret@"));
    assert_text_equal(is_refused(error_code::auth_failed).message(), "the server does not tell of changes");
  }
}

void no_credentials_where_they_are_needed_refuse_the_link(void**) {
  redis({"ACL", "SETUSER", "guest", "reset", "on", ">secret", "~*", "+@all"});
  start_link(watching(), tcp_url("guest:wrong@"));
  is_refused(error_code::auth_failed);
}

void right_revoked_while_up_refuses_the_link(void**) {
  redis({"ACL", "SETUSER", "guest", "reset", "on", ">secret", "~*", "+@all"});
  start_watching(tcp_url("guest:secret@"));
  redis({"ACL", "SETUSER", "guest", "-client|caching"});
  send(operation_kind::acquire, "k", own);
  assert_true(run_until([] { return watching().losses > 0; }));
  assert_true(watching().refused && watching().why->code() == error_code::auth_failed);
  assert_true(watching().outcomes.empty());
}

void link_that_was_lost_comes_back_and_watches(void**) {
  start_watching();
  mutate(operation_kind::acquire, own, verdict::acquired);
  redis({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  assert_true(run_until([] { return watching().losses == 1 && watching().up; }));
  assert_false(watching().refused);
  mutate(operation_kind::extend, own, verdict::extended);
  remove_lock();
  assert_true(is_told(lock_key("k")));
}

// --- names -----------------------------------------------------------------------------------------------------------

std::string named_url() { return tcp_url("", "localhost"); }

void both_links_resolve_at_once(void**) {
  start_link(watching(), named_url());
  start_link(second(), named_url(), false);
  assert_true(comes_up(watching()) && comes_up(second()));
}

void link_that_ends_leaves_the_lookup_to_the_other(void**) {
  start_link(watching(), named_url());
  start_link(second(), named_url(), false);
  second().link->stop();
  assert_true(comes_up(watching()));
  assert_int_equal(second().ups, 0);
}

void link_that_asked_first_leaves_the_lookup_to_the_other(void**) {
  start_link(watching(), named_url());
  start_link(second(), named_url(), false);
  watching().link.reset();
  assert_true(comes_up(second()));
}

void link_that_ends_and_starts_again_joins_the_lookup(void**) {
  start_link(watching(), named_url());
  start_link(second(), named_url(), false);
  watching().link->stop();
  watching().link->start();
  assert_true(comes_up(watching()) && comes_up(second()));
}

void lookup_that_nobody_wants_is_given_up(void**) {
  start_link(watching(), named_url());
  start_link(second(), named_url(), false);
  watching().link->stop();
  second().link->stop();
  run_for(50ms);
  assert_int_equal(watching().ups + second().ups + watching().losses + second().losses, 0);
  watching().link->start();
  assert_true(comes_up(watching()));
}

// --- hostile servers -------------------------------------------------------------------------------------------------

std::string bulk(const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n"; }

// Plays along until the link is up; batches are not answered.
std::string play_along(const fake_server::command& asked) {
  if (asked[0] == "ROLE") return "*1\r\n$6\r\nmaster\r\n";
  if (asked[0] == "HELLO") return "%2\r\n$6\r\nserver\r\n$4\r\nfake\r\n$5\r\nproto\r\n:3\r\n";
  if (asked[0] != "EVALSHA") return "+OK\r\n";
  return asked.at(asked.size() - 3) == "t" ? bulk("1700000000000T") : "";
}

void make_fake(fake_server::answers answer) {
  fake.reset();
  fake = std::make_unique<fake_server>(server().folder() + "/fake.sock", std::move(answer));
}

void start_watching_fake() {
  make_fake(play_along);
  start_watching("unix://" + fake->path());
}

// The link takes no harm, and goes on listening.
void is_ignored(const std::string& push) {
  watching().told.clear();
  fake->say(push);
  fake->say(">2\r\n$10\r\ninvalidate\r\n*1\r\n$4\r\nlast\r\n");
  assert_true(is_told("last"));
  assert_int_equal(watching().told.size(), 1);
  assert_int_equal(watching().losses, 0);
}

void pushes_that_make_no_sense_are_ignored(void**) {
  start_watching_fake();
  const std::string name = "$10\r\ninvalidate\r\n";
  for (const std::string& push :
       std::vector<std::string>{">0\r\n", ">1\r\n" + name, ">2\r\n:1\r\n:2\r\n", ">2\r\n*0\r\n*0\r\n",
                                ">2\r\n_\r\n_\r\n", ">2\r\n$5\r\nother\r\n*1\r\n$1\r\nk\r\n",
                                ">2\r\n" + name + ":1\r\n", ">2\r\n" + name + "$1\r\nk\r\n", ">2\r\n" + name + "*0\r\n",
                                ">2\r\n" + name + "*2\r\n:1\r\n_\r\n", ">2\r\n" + name + "*1\r\n*1\r\n$1\r\nk\r\n",
                                ">2\r\n" + name + "%1\r\n$1\r\nk\r\n$1\r\nk\r\n", ">2\r\n" + name + "~1\r\n$1\r\nk\r\n",
                                ">6\r\n,1.5\r\n#t\r\n=5\r\ntxt:x\r\n(12345678901234567890\r\n-ERR no\r\n+fine\r\n"})
    is_ignored(push);
}

void push_of_many_keys_is_told_key_by_key(void**) {
  start_watching_fake();
  fake->say(">2\r\n$10\r\ninvalidate\r\n*3\r\n$1\r\na\r\n$0\r\n\r\n$3\r\nb\nc\r\n");
  assert_true(is_told("b\nc"));
  assert_true((watching().told == std::vector<std::string>{"a", "", "b\nc"}));
}

void is_lost_by(const std::string& said) {
  watching().losses = 0;
  watching().up = false;
  start_watching_fake();
  send(operation_kind::acquire, "k", own);
  run_serving_until([turns = 0]() mutable { return ++turns > 3; });
  fake->say(said);
  assert_true(run_until([] { return watching().losses > 0; }));
  assert_false(watching().refused);
  note("%s", describe(*watching().why).c_str());
  assert_true(watching().outcomes.empty());
  watching().link.reset();
}

void pushes_beyond_all_bounds_end_the_connection(void**) {
  is_lost_by(">4097\r\n");
  is_lost_by(">9223372036854775807\r\n");
  is_lost_by(">-2\r\n");
  is_lost_by(">2\r\n$10\r\ninvalidate\r\n*4097\r\n");
  is_lost_by(">2\r\n$10\r\ninvalidate\r\n%4097\r\n");
  std::string deep;
  for (int level = 0; level < 9; ++level) deep += ">1\r\n";
  is_lost_by(deep + ":1\r\n");
}

// Four times as much is said as may be kept, so a link that goes on reading is found out without filling the memory.
void is_lost_by_endless(const std::string& beginning) {
  watching().losses = 0;
  watching().up = false;
  start_watching_fake();
  send(operation_kind::acquire, "k", own);
  run_serving_until([turns = 0]() mutable { return ++turns > 3; });
  fake->say(beginning);
  const std::string more(std::size_t{16} << 10, 'x');
  const std::size_t rounds_max = 4 * redis::reply_arena::reply_max_bytes / more.size();
  for (std::size_t round = 0; round < rounds_max && watching().losses == 0; ++round) {
    fake->say(more);
    turn();
  }
  assert_true(watching().losses > 0);
  assert_false(watching().refused);
  assert_true(watching().outcomes.empty());
  watching().link.reset();
}

void replies_without_an_end_end_the_connection(void**) {
  is_lost_by_endless("$1000000000\r\n");
  is_lost_by_endless("+");
  is_lost_by_endless(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1000000000\r\n");
}

// hiredis would take it for the answer to the batch.
void message_to_a_subscriber_ends_the_connection(void**) {
  is_lost_by(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
  is_lost_by(">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
}

void answer_behind_many_pushes_is_found_by_a_poll(void**) {
  start_watching_fake();
  send(operation_kind::acquire, "k", own);
  run_serving_until([turns = 0]() mutable { return ++turns > 3; });
  std::string said;
  for (int push = 0; push < 1000; ++push) said += ">2\r\n$10\r\ninvalidate\r\n*1\r\n$4\r\nsome\r\n";
  fake->say(said + bulk("1700000000000l0000000000000071700000060000"));
  watching().link->poll();
  assert_int_equal(watching().told.size(), 1000);
  assert_int_equal(watching().outcomes.size(), 1);
  assert_true(watching().outcomes[0].what == verdict::contended);
}

void server_that_knows_no_resp3_refuses_the_link(void**) {
  for (const char* answer : {"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n",
                             "-NOPROTO unsupported protocol version\r\n"}) {
    watching().losses = 0;
    make_fake([answer](const fake_server::command& asked) {
      return asked[0] == "HELLO" ? std::string{answer} : play_along(asked);
    });
    start_link(watching(), "unix://" + fake->path());
    is_refused(error_code::service_unavailable);
  }
}

void server_that_is_busy_is_asked_again(void**) {
  make_fake([busy = 2](const fake_server::command& asked) mutable {
    const bool tracking = asked.size() > 1 && asked[1] == "TRACKING";
    return tracking && busy-- > 0 ? std::string{"-BUSY running a script\r\n"} : play_along(asked);
  });
  start_link(watching(), "unix://" + fake->path());
  assert_true(comes_up(watching()));
  assert_int_equal(watching().losses, 2);
}

void answers_that_make_no_sense_fail_the_operation(void**) {
  start_watching_fake();
  for (const std::string& answer :
       std::vector<std::string>{bulk("1700000000000l1"), bulk("1700000000000l000000000000007"),
                                bulk("1700000000000l00000000000000x1700000060000"), bulk("1700000000000"), bulk(""),
                                "_\r\n", "*0\r\n", "%0\r\n", "#t\r\n"}) {
    send(operation_kind::acquire, "k", own);
    run_serving_until([turns = 0]() mutable { return ++turns > 3; });
    fake->say(answer);
    const auto outcome = await_outcome();
    assert_true(outcome.what == verdict::failed && outcome.failure->code() == error_code::internal);
  }
}

}  // namespace

}  // namespace syncguard::testing

int main() {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
#define watching_case(name) cmocka_unit_test_setup_teardown(name, set_up_host, tear_down_host)
  const CMUnitTest tests[] = {
      watching_case(comes_up_by_name_and_tells_no_policy),
      watching_case(plain_link_asks_for_nothing_of_that),
      watching_case(outcomes_bring_the_servers_time_and_the_holders_fence),
      watching_case(holder_without_a_fence_is_contended_without_one),
      watching_case(contended_lock_is_told_of_when_it_is_deleted),
      watching_case(contended_lock_is_told_of_when_it_expires),
      watching_case(acquired_lock_is_told_of_when_it_is_deleted),
      watching_case(extended_lock_is_told_of_when_it_is_deleted),
      watching_case(extended_lock_is_told_of_when_it_expires),
      watching_case(lock_with_a_long_key_is_told_of_by_its_storage_key),
      watching_case(everything_is_told_of_when_all_is_flushed),
      watching_case(what_is_done_on_the_link_itself_is_not_told),
      watching_case(every_batch_has_its_own_wish_before_it),
      watching_case(lock_is_watched_though_the_scripts_had_to_be_loaded_again),
      watching_case(other_database_and_user_are_watched_too),
      watching_case(least_rights_suffice),
      watching_case(missing_right_refuses_the_link),
      watching_case(no_credentials_where_they_are_needed_refuse_the_link),
      watching_case(right_revoked_while_up_refuses_the_link),
      watching_case(link_that_was_lost_comes_back_and_watches),
      watching_case(both_links_resolve_at_once),
      watching_case(link_that_ends_leaves_the_lookup_to_the_other),
      watching_case(link_that_asked_first_leaves_the_lookup_to_the_other),
      watching_case(link_that_ends_and_starts_again_joins_the_lookup),
      watching_case(lookup_that_nobody_wants_is_given_up),
      watching_case(pushes_that_make_no_sense_are_ignored),
      watching_case(push_of_many_keys_is_told_key_by_key),
      watching_case(pushes_beyond_all_bounds_end_the_connection),
      watching_case(replies_without_an_end_end_the_connection),
      watching_case(message_to_a_subscriber_ends_the_connection),
      watching_case(answer_behind_many_pushes_is_found_by_a_poll),
      watching_case(server_that_knows_no_resp3_refuses_the_link),
      watching_case(server_that_is_busy_is_asked_again),
      watching_case(answers_that_make_no_sense_fail_the_operation),
  };
  return cmocka_run_group_tests_name("watching", tests, start_world, stop_world);
}

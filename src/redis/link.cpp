#include "redis/link.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include <hiredis.h>
#include <sodium.h>

#include "protocol/error_map.hpp"
#include "protocol/server_time.hpp"
#include "redis/command_codec.hpp"
#include "syncguard_scripts.hpp"

namespace syncguard::redis {

namespace {

// How often a busy link makes sure that it still talks to a master.
constexpr std::int64_t role_interval_us = 1'000'000;

// What a reply belongs to.
constexpr std::uint8_t batch_kind = 0;
constexpr std::uint8_t step_kind = 1;

std::string_view text_of(const redisReply& reply) noexcept {
  return reply.str != nullptr ? std::string_view{reply.str, reply.len} : std::string_view{};
}

bool is_numeric(const std::string& host) noexcept {
  in6_addr ignored{};
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1 || inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

// What a server answers that cannot, or may not, tell of changes.
error watching_refused(std::string_view text) noexcept {
  const bool forbidden = protocol::classify_error(text) == error_code::auth_failed;
  error why{forbidden ? error_code::auth_failed : error_code::service_unavailable,
            "the server does not tell of changes"};
  why.with_context({}, {}, text);
  return why;
}

bool wants_no_retry(const error& why) noexcept {
  return why.code() == error_code::auth_failed || why.code() == error_code::invalid_argument;
}

}  // namespace

link::link(link_options options, const protocol::key_space& keys, event_loop& loop, link_owner& owner)
    : options_(std::move(options)), keys_(keys), loop_(loop), owner_(owner) {}

link::~link() {
  if (phase_ == phase::resolving) loop_.cancel_resolve();
}

void link::start() { connect(); }

void link::stop() {
  if (phase_ == phase::resolving) loop_.cancel_resolve();
  connection_.reset();
  lost_.reset();
  came_up_ = false;
  deadline_ms_.reset();
  phase_ = phase::idle;
}

void link::connect() {
  deadline_ms_ = now_us() / 1000 + options_.connect_timeout_ms;
  const endpoint& where = options_.where;
  if (where.via == endpoint::transport::unix_socket || is_numeric(where.host)) return open(where.host);
  phase_ = phase::resolving;
  loop_.resolve(where.host);
}

void link::resolved(std::vector<std::string> addresses, std::string_view why) {
  if (phase_ != phase::resolving) return;
  if (addresses.empty()) {
    error unknown{error_code::service_unavailable, "the server's name could not be resolved"};
    unknown.with_context({}, {}, why);
    return fail(std::move(unknown), false);
  }
  // Each attempt takes the next address, in case the first is the one that does not answer.
  open(addresses[next_address_++ % addresses.size()]);
}

void link::open(const std::string& address) {
  phase_ = phase::connecting;
  std::optional<error> why;
  connection_ =
      connection::open({address, options_.where.port, options_.where.path}, loop_, options_.tls.get(), *this, why);
  if (connection_ == nullptr) fail(std::move(*why), false);
}

void link::connected() { introduce(); }

void link::introduce() {
  phase_ = phase::introducing;
  if (!options_.where.password.empty()) send_step(step::auth);
  if (options_.watch) send_step(step::hello);
  if (options_.where.database != 0) send_step(step::select);
  if (!options_.client_name.empty()) send_step(step::name);
  load_scripts();
  send_step(step::role);
  if (options_.watch) {
    send_step(step::tracking);
    send_step(step::caching);  // whether it may be sent is better known now
  } else {
    send_step(step::policy);
  }
  send_step(step::self_test);
  unsent_ = true;
  loop_.want_turn_end();
}

void link::send_step(step which) {
  const endpoint& where = options_.where;
  switch (which) {
    case step::auth:
      writer_.begin(where.user.empty() ? 2 : 3);
      writer_.add("AUTH");
      if (!where.user.empty()) writer_.add(where.user);
      writer_.add(where.password);
      break;
    case step::hello:
      writer_.begin(2);
      writer_.add("HELLO");
      writer_.add("3");
      break;
    case step::select:
      writer_.begin(2);
      writer_.add("SELECT");
      writer_.add(std::int64_t{where.database});
      break;
    case step::name:
      writer_.begin(3);
      writer_.add("CLIENT");
      writer_.add("SETNAME");
      writer_.add(options_.client_name);
      break;
    case step::role:
    case step::recheck:
      writer_.begin(1);
      writer_.add("ROLE");
      break;
    case step::policy:
      writer_.begin(3);
      writer_.add("CONFIG");
      writer_.add("GET");
      writer_.add("maxmemory-policy");
      break;
    case step::tracking:
      writer_.begin(5);
      for (const std::string_view word : {"CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"}) writer_.add(word);
      break;
    case step::caching:
      writer_.begin(3);
      for (const std::string_view word : {"CLIENT", "CACHING", "YES"}) writer_.add(word);
      break;
    case step::self_test: write_self_test(keys_, writer_); break;
    case step::time:
      writer_.begin(1);
      writer_.add("TIME");
      break;
    case step::script:
    case step::reload: return;  // by load_scripts()
  }
  connection_->send(writer_.text(), {step_kind, static_cast<std::uint8_t>(which)});
  unsent_ = true;
}

void link::load_scripts() {
  if (connection_ == nullptr) return;
  const step which = phase_ == phase::up ? step::reload : step::script;
  for (const auto& script : scripts::all) {
    writer_.begin(3);
    writer_.add("SCRIPT");
    writer_.add("LOAD");
    writer_.add(script.text);
    connection_->send(writer_.text(), {step_kind, static_cast<std::uint8_t>(which)});
  }
  unsent_ = true;
}

void link::replied(reply_tag tag, void* subject, const redisReply& reply) {
  if (tag.kind == batch_kind) return batch_replied(*static_cast<engine::batch*>(subject), reply);
  introduction_replied(static_cast<step>(tag.step), reply);
}

void link::introduction_replied(step which, const redisReply& reply) {
  if (reply.type == REDIS_REPLY_ERROR) return introduction_failed(which, text_of(reply));
  switch (which) {
    case step::role:
    case step::recheck: return check_role(reply);
    case step::policy:
      if (reply.elements == 2 && text_of(*reply.element[1]) != "noeviction")
        owner_.unsafe_policy(text_of(*reply.element[1]));
      return;
    case step::self_test:
      if (auto why = read_self_test(reply)) {
        const bool refused = wants_no_retry(*why);
        return fail(std::move(*why), refused);
      }
      phase_ = phase::up;
      came_up_ = true;
      deadline_ms_.reset();
      return loop_.want_turn_end();
    case step::time:
      if (reply.elements == 2)
        server_now_ms_ =
            protocol::parse_server_time_ms(text_of(*reply.element[0]), text_of(*reply.element[1])).value_or(0);
      return;
    default: return;
  }
}

void link::introduction_failed(step which, std::string_view text) {
  // Without these rights the link works all the same.
  const bool optional = which == step::name || which == step::role || which == step::policy || which == step::recheck;
  const bool stranger = protocol::reply_code_word(text) == "NOAUTH";
  if (optional && !stranger) return;
  error why = error_from_reply(text);
  // BUSY, LOADING and their like pass; whatever else is said to these is said for good.
  const bool watching = which == step::hello || which == step::tracking || which == step::caching;
  if (watching && !stranger && why.code() != error_code::service_unavailable) return fail(watching_refused(text), true);
  const bool refused = wants_no_retry(why);
  fail(std::move(why), refused);
}

void link::check_role(const redisReply& reply) {
  if (reply.elements == 0 || text_of(*reply.element[0]) == "master") return;
  error why{error_code::service_unavailable, "the server is not a master"};
  why.with_context({}, {}, text_of(*reply.element[0]));
  fail(std::move(why), false);
}

void link::batch_replied(engine::batch& which, const redisReply& reply) {
  attempts_ = 0;  // now it is of use; a link that only comes up may go down the same way again
  if (reply.type == REDIS_REPLY_ERROR && protocol::reply_code_word(text_of(reply)) == "NOSCRIPT")
    return owner_.batch_without_script(which);
  reply_reader reader{which, reply, server_now_ms_};
  owner_.batch_answered(which, reader);
}

void link::send(engine::batch& what) {
  if (phase_ != phase::up) return;  // lost in this turn; the engine will be told
  if (what.kind == engine::travel_class::key_read && !std::exchange(time_asked_, true)) send_step(step::time);
  if (options_.watch) send_step(step::caching);  // holds for the one command that follows
  write_batch(what, keys_, writer_, options_.watch);
  connection_->send(writer_.text(), {batch_kind, 0}, &what);
  unsent_ = true;
  // The server works on a full batch while this turn goes on. Otherwise both would take turns, each waiting for the
  // other.
  if (what.kind == engine::travel_class::mutation && what.count >= engine::batch::mutation_max)
    connection_->flush_early();
}

void link::flush() {
  time_asked_ = false;
  if (connection_ == nullptr || !unsent_) return;
  if (phase_ == phase::up) ask_for_role();
  unsent_ = false;
  connection_->flush();
}

// A contended lock on a server that has been made a replica looks like any other: nothing is written, nothing fails.
void link::ask_for_role() {
  const std::int64_t now = now_us();
  if (now - role_asked_us_ < role_interval_us) return;
  role_asked_us_ = now;
  send_step(step::recheck);
}

void link::poll() {
  if (connection_ != nullptr) connection_->poll();
}

// What makes no sense is not for us: servers may learn to push more.
void link::pushed(const redisReply& push) {
  if (!options_.watch || phase_ != phase::up || push.elements < 2) return;
  if (text_of(*push.element[0]) != "invalidate") return;
  const redisReply& keys = *push.element[1];
  if (keys.type == REDIS_REPLY_NIL) return owner_.invalidated_all();
  if (keys.type != REDIS_REPLY_ARRAY) return;
  for (std::size_t index = 0; index < keys.elements; ++index)
    if (keys.element[index]->type == REDIS_REPLY_STRING) owner_.invalidated(text_of(*keys.element[index]));
}

void link::drop(const error& why) { fail(why, false); }

void link::lost(error why, bool refused) { fail(std::move(why), refused); }

// Ends whatever is under way. Told at the end of the turn, from where the owner may do anything.
void link::fail(error why, bool refused) {
  if (lost_ || phase_ == phase::idle) return;
  if (phase_ == phase::resolving) loop_.cancel_resolve();
  connection_.reset();
  came_up_ = false;
  time_asked_ = false;
  lost_ = std::move(why);
  lost_refused_ = refused;
  wait_before_next_attempt(refused);
  loop_.want_turn_end();
}

void link::wait_before_next_attempt(bool refused) {
  phase_ = phase::waiting;
  const unsigned doublings = std::min(attempts_++, 20U);
  const std::int64_t pause =
      refused ? options_.reconnect_max_ms
              : std::min(options_.reconnect_max_ms, options_.reconnect_min_ms * (std::int64_t{1} << doublings));
  const std::int64_t half = pause / 2;
  deadline_ms_ = now_us() / 1000 + half + randombytes_uniform(static_cast<std::uint32_t>(pause - half + 1));
}

void link::end_turn() {
  if (unsent_ && connection_ != nullptr && phase_ == phase::introducing) {
    unsent_ = false;
    connection_->flush();
  }
  if (lost_) {
    const error why = *std::exchange(lost_, std::nullopt);
    return owner_.link_lost(why, lost_refused_);
  }
  if (std::exchange(came_up_, false)) owner_.link_up();
}

void link::run_timer(std::int64_t now_ms) {
  if (lost_ || !deadline_ms_ || now_ms < *deadline_ms_) return;  // what is lost is told before anything new begins
  deadline_ms_.reset();
  if (phase_ == phase::waiting) return connect();
  fail({error_code::network_timeout, "no connection could be made in time"}, false);
}

}  // namespace syncguard::redis

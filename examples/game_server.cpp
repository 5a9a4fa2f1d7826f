// A game server: one of several processes that share six matches. Each match is run by exactly one of them, the one
// that holds its lock; when that one dies, another takes over. `./dev demo` shows three of them.
//
//   game_server NAME REDIS_URL STORE_PORT [PORT]
//
// STORE_PORT is where fenced_store listens; it keeps the scores. On a port of its own the server tells whoever connects
// what it runs (try `nc 127.0.0.1 PORT`) and understands one command, `slow-write MATCH`: see slow_write().

#include <uv.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <syncguard/client.hpp>
#include <syncguard/uv.hpp>

#include "small_uv.hpp"

using namespace std::chrono_literals;

namespace {

constexpr int matches_max = 3;     // on one server: two can run all six
constexpr auto time_to_live = 3s;  // how long the matches of a server that dies stand still
constexpr auto forever = 24h;      // waiting for a lock costs nothing: it does not poll
constexpr auto point_every = 300ms, look_every = 20ms, rest_per_match = 400ms;

struct match {
  std::string key;
  std::optional<syncguard::operation_handle> wanted{};  // there while we wait for the lock
  syncguard::lock lock{};                               // empty unless we run the match
  bool playing = false;                                 // false until the store has said what the score is
  long score = 0;

  bool is_ours() const { return bool{lock}; }
  bool is_open() const { return !lock && !wanted; }
};

std::string text_of(syncguard::fence fence) { return std::string{fence.to_text().view()}; }

class game_server {
 public:
  game_server(uv_loop_t* loop, const std::string& name, const std::string& redis_url, int store_port, int port)
      : name_(name),
        client_(syncguard::uv(loop), {.url = redis_url, .client_name = name}),
        listener_(loop, port),
        store_(new example::connection{loop}),
        signals_(loop, [this] { close("it was told to"); }),
        play_timer_(loop, [this] { play(); }),
        rest_timer_(loop, [this] { look_for_a_match(); }) {
    listener_.on_connect = [this](example::connection& caller) { caller.send(status()); };
    listener_.on_line = [this](example::connection&, const std::string& line) { obey(line); };
    store_->on_line = [this](example::connection&, const std::string& line) { hear_from_store(line); };
    store_->on_closed = [this](example::connection&) { store_ = nullptr, close("the store is gone"); };
    store_->connect(store_port);
    play_timer_.start(point_every, point_every);
    rest_timer_.start(0ms);
    say("listening on 127.0.0.1:" + std::to_string(listener_.port()));
    if (listener_.port() < 0) close(uv_strerror(listener_.port()));
  }

 private:
  // Waits for one more match, and comes back soon to wait for the next, too: not for all at once, because of those that
  // nobody runs we want only one. So in the end we wait for every match that others run.
  void look_for_a_match() {
    const auto found = std::ranges::find_if(matches_, &match::is_open);
    if (count() >= matches_max || found == matches_.end()) return;
    const auto done = [this, &sought = *found](syncguard::result<syncguard::lock> got) {
      if (!sought.wanted) return;  // cancelled, perhaps too late: then the end of `got` gives the lock back
      sought.wanted.reset();
      if (got) return own(sought, std::move(*got));
      say("cannot get " + sought.key + ": " + describe(got.error()));
      rest_timer_.start(1s);
    };
    found->wanted = client_.lock(found->key, {.ttl = time_to_live, .wait = forever}, done);
    rest_timer_.start(look_every);
  }

  void stop_waiting() {
    for (match& each : matches_)
      if (const auto operation = std::exchange(each.wanted, std::nullopt)) client_.cancel(*operation);
  }

  void own(match& taken, syncguard::lock lock) {
    say("took " + taken.key + " with fence " + text_of(lock.fence()));
    taken.lock = std::move(lock);  // it extends itself from here on
    taken.lock.on_lost([this, &taken](syncguard::lost why) {
      say((closing_ ? "gives back " : "lost ") + taken.key + " (" + std::string{to_string(why)} + ')');
      taken.playing = false;
      taken.lock = {};
      rest();
    });
    // The store wants a fence even for a read: from then on it takes nothing from earlier holders.
    tell_store("READ", taken, "");
    stop_waiting();
    rest();
  }

  // The more matches a server has, the longer it leaves free ones to others: so they share without talking.
  void rest() { rest_timer_.start(rest_per_match * count()); }

  long count() const { return std::ranges::count_if(matches_, &match::is_ours); }

  void play() {
    // on_lost stops a match, but this loop may have been held up, and on_lost be late; valid() never is.
    for (match& each : matches_)
      if (each.playing && each.lock.valid()) tell_store("WRITE", each, std::to_string(++each.score) + ' ' + name_);
  }

  // The accident that no check can prevent: however late a program asks whether its lock is valid, it may be paused
  // between the answer and what it does next; by a memory page that comes from a slow disk, a virtual machine that
  // moves to another host, a garbage collector, or, in the demo, by SIGSTOP. Usually there are microseconds between the
  // two. Here it is long enough for the demo to hit it. The loop stands still meanwhile, so no on_lost can come either.
  void slow_write(match& which) {
    if (!which.lock.valid()) return say("does not run " + which.key);
    say("has checked that " + which.key + " is its own, and is about to write");
    std::this_thread::sleep_for(1500ms);
    say("writes to " + which.key + " with fence " + text_of(which.lock.fence()));
    tell_store("WRITE", which, "999 " + name_ + " (late)");
  }

  // ok match fence; stale match highest-fence; value match fence score...
  void hear_from_store(const std::string& line) {
    std::string verdict, key, fence;
    long score = 0;
    std::istringstream{line} >> verdict >> key >> fence >> score;
    if (verdict == "stale") say("is refused at " + key + ": the store has seen fence " + fence);
    if (verdict != "value") return;
    for (match& each : matches_)
      if (each.key == key && each.lock && text_of(each.lock.fence()) == fence) each.playing = true, each.score = score;
  }

  void tell_store(const std::string& verb, const match& which, const std::string& text) {
    if (store_ != nullptr) store_->send(verb + ' ' + which.key + ' ' + text_of(which.lock.fence()) + ' ' + text);
  }

  std::string status() const {
    std::string text = name_;
    for (const match& each : matches_)
      if (each.lock.valid()) text += ' ' + each.key + '=' + text_of(each.lock.fence());
    return text;
  }

  void say(const std::string& what) const { std::printf("%s\n", what.c_str()); }

  void obey(const std::string& line) {
    for (match& each : matches_)
      if (line == "slow-write " + each.key) slow_write(each);
  }

  // Gives back all locks, so that the others need not wait until they expire.
  void close(const std::string& why) {
    if (closing_) return;
    closing_ = true;
    say("ends: " + why);
    stop_waiting();
    client_.close(nullptr);
    listener_.close();
    if (store_ != nullptr) store_->close();
    signals_.close();
    play_timer_.close();
    rest_timer_.close();
  }

  std::string name_;
  std::array<match, 6> matches_{{{"match:1"}, {"match:2"}, {"match:3"}, {"match:4"}, {"match:5"}, {"match:6"}}};
  syncguard::client client_;
  example::listener listener_;
  example::connection* store_;
  example::end_signals signals_;
  example::timer play_timer_;
  example::timer rest_timer_;  // until we look for the next match
  bool closing_ = false;
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return std::fputs("usage: game_server NAME REDIS_URL STORE_PORT [PORT]\n", stderr), 2;
  std::signal(SIGPIPE, SIG_IGN);  // a connection that the other side has closed must not end the program
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // the demo reads line by line

  const int port = count > 4 ? example::to_port(arguments[4]) : 0;
  uv_loop_t* loop = uv_default_loop();
  {
    game_server server{loop, arguments[1], arguments[2], example::to_port(arguments[3]), port};
    uv_run(loop, UV_RUN_DEFAULT);
  }
  return uv_run(loop, UV_RUN_DEFAULT);  // the client is gone: its handles are freed in this turn
}

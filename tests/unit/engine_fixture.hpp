#pragma once

// An engine without a world: a port that writes down what leaves, an observer that writes down what is told, a clock
// that stands still, and a server that says what the test wants. What has happened is read as a line of text:
//
//   take_sent()   "M[acquire:a release:b] K[is_locked:c] flush": batches of mutations (M), reads of keys (K) and of ids
//                 (I), and the other calls of the port. "release:~a" is the engine's own release of the lock of a.
//   take_told()   "a=acquired b!NetworkTimeout?": outcomes, and errors; the ? says that the outcome is unknown.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "support/cmocka.hpp"
#include "support/model/names.hpp"

namespace syncguard::testing {

inline constexpr std::int64_t lock_ttl_ms = 30'000;

struct said {
  verdict what = verdict::failed;
  bool cleanable = false;
  bool demoted = false;
};

class engine_world final : public engine::port, public engine::observer {
 public:
  explicit engine_world(const engine_options& options = {})
      : subject(std::make_unique<engine::engine>(options, *this, *this, now_us)) {}
  ~engine_world() = default;
  engine_world(const engine_world&) = delete;
  engine_world& operator=(const engine_world&) = delete;

  // The lock id is that of the operation called `id_name`, or one of its own.
  void start(operation_kind kind, const std::string& name, const std::string& id_name = {}) {
    const lock_id id = id_of(id_name.empty() ? name : id_name);
    ids_.insert_or_assign(name, id);
    const operation* slot = subject->start({kind, name, id, ttl_ms}, counted(name), now_us);
    names_.insert_or_assign(name, std::pair{slot->slot, slot->generation});
  }
  void acquire(const std::string& name) { start(operation_kind::acquire, name); }
  void start_many(operation_kind kind, const std::string& prefix, int count) {
    for (int index = 0; index < count; ++index) start(kind, prefix + std::to_string(index));
  }
  void start_failed(const std::string& name, error_code code) {
    ids_.insert_or_assign(name, id_of(name));
    subject->start_failed({operation_kind::acquire, name, id_of(name)}, counted(name), {code, "it was refused"},
                          now_us);
  }
  bool cancel(const std::string& name) {
    const auto [slot, generation] = names_.at(name);
    return subject->cancel(slot, generation, now_us);
  }

  void end_turn() { subject->end_turn(now_us); }
  void jump_ms(std::int64_t ms) {
    now_us += ms * 1000;
    subject->run_timers(now_us);
  }
  void link_up() { subject->link_up(); }
  void link_down(error_code code, bool refused = false) {
    in_flight.clear();
    subject->link_down({code, "the link is gone"}, refused, now_us);
  }

  // Answers the oldest batch; the last word holds for the rest of its operations.
  void answer(const std::vector<said>& words) {
    batch& oldest = *in_flight.front();
    in_flight.pop_front();
    words_answer reading{words};
    subject->answered(oldest, reading, now_us);
  }
  void answer(verdict what) { answer({said{what}}); }
  void script_missing() {
    batch& oldest = *in_flight.front();
    in_flight.pop_front();
    subject->script_missing(oldest);
  }

  std::string take_sent() { return std::exchange(sent_, {}); }
  std::string take_told() { return std::exchange(told_, {}); }
  const std::map<std::string, int>& callbacks_run() const { return callbacks_run_; }
  std::size_t started() const { return ids_.size(); }
  std::string describe(const operation& item) const {
    if (!item.id && item.kind != operation_kind::clean_up) return "a slot that is free";
    const std::string kind{name_of(item.kind)};
    const std::string name{item.key.view()};
    if (name.empty()) return kind + ":~" + owner_of(*item.id);
    return kind + ":" + name + (item.id && !(*item.id == ids_.at(name)) ? "(wrong id)" : "");
  }
  // The operation that first used this lock id.
  const std::string& owner_of(const lock_id& id) const { return owners_.at(std::string{id.view()}); }

  std::int64_t now_us = 1'000'000'000;
  std::int64_t ttl_ms = lock_ttl_ms;
  std::unique_ptr<engine::engine> subject;              // on the heap, where a sanitizer sees any use after its end
  std::deque<batch*> in_flight;                         // the oldest first
  bool turn_end_wanted = false;                         //
  std::string last_cause;                               // of the last error that was told
  std::function<void(const std::string& name)> inside;  // run in each settle(), with the operation's name
  std::function<void()> inside_poll;

 private:
  class words_answer final : public engine::batch_answer {
   public:
    explicit words_answer(const std::vector<said>& words) : words_(words) {}
    void read(std::size_t index, const operation&, outcome& out) override {
      const said& word = index < words_.size() ? words_[index] : words_.back();
      out.what = word.what;
      out.cleanable = word.cleanable;
      out.demoted = word.demoted;
      if (word.what == verdict::failed) out.failure = error{error_code::service_unavailable, "the server is busy"};
    }

   private:
    const std::vector<said>& words_;
  };

  void send(batch& what) override {
    in_flight.push_back(&what);
    const std::string letter{"MKI"[static_cast<std::size_t>(what.kind)]};
    if (what.count > 8) return log(sent_, letter + "[" + std::to_string(what.count) + "]");
    std::string items;
    for (std::size_t index = 0; index < what.count; ++index) log(items, describe(*what.operations[index]));
    log(sent_, letter + "[" + items + "]");
  }
  void flush() override { log(sent_, "flush"); }
  void load_scripts() override { log(sent_, "load"); }
  void poll() override {
    log(sent_, "poll");
    if (inside_poll) inside_poll();
  }
  void drop(const error& why) override { log(sent_, "drop:" + std::string{to_string(why.code())}); }
  void want_turn_end() override { turn_end_wanted = true; }

  void settle(engine::engine&, operation& over, outcome& what) override {
    const std::string name{over.key.view()};
    log(told_, name + (what.failure ? "!" + std::string{to_string(what.failure->code())}
                                    : "=" + std::string{name_of(what.what)}));
    if (what.failure && what.failure->outcome_unknown()) told_ += '?';
    if (!over.id || !(*over.id == ids_.at(name))) told_ += "(wrong id)";
    if (what.failure) last_cause = what.failure->cause();
    auto done = std::move(over.done);
    subject->forget(over);
    if (auto* call = std::get_if<callback<result<bool>>>(&done)) (*call)(true);
    const auto hook = inside;  // a copy: it may replace itself
    if (hook) hook(name);
  }

  engine::completion counted(const std::string& name) {
    int* count = &callbacks_run_[name];
    return callback<result<bool>>{[count](const result<bool>&) { ++*count; }};
  }
  lock_id id_of(const std::string& name) {
    std::array<std::uint8_t, lock_id::random_bytes> bytes{};
    for (std::size_t index = 0; index < name.size() && index < bytes.size(); ++index)
      bytes.at(index) = static_cast<std::uint8_t>(name[index]);
    const lock_id id = lock_id::from_bytes(bytes);
    owners_.emplace(id.view(), name);
    return id;
  }
  static void log(std::string& line, const std::string& word) {
    if (!line.empty()) line += ' ';
    line += word;
  }

  std::string sent_;
  std::string told_;
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> names_;
  std::map<std::string, lock_id> ids_;
  std::map<std::string, std::string> owners_;
  std::map<std::string, int> callbacks_run_;
};

// Set-up and tear-down: the world of a case is in its state, because a failed assertion runs no destructors.
inline int make_world(void** state) {
  *state = new engine_world;
  return 0;
}
inline int make_world_with_link(void** state) {
  auto* world = new engine_world;
  world->link_up();
  *state = world;
  return 0;
}
inline int end_world(void** state) {
  delete static_cast<engine_world*>(*state);
  return 0;
}
inline engine_world& world_of(void** state) { return *static_cast<engine_world*>(*state); }

}  // namespace syncguard::testing

#define engine_test(name) \
  cmocka_unit_test_setup_teardown(name, ::syncguard::testing::make_world_with_link, ::syncguard::testing::end_world)
#define engine_test_without_link(name) \
  cmocka_unit_test_setup_teardown(name, ::syncguard::testing::make_world, ::syncguard::testing::end_world)

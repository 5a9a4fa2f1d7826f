// Any sequence of events at a client without a loop: locks are asked for, extended, released and dropped; links come
// and go, answers are late or lost or say anything, scripts are missing, records change, time passes or jumps, and
// callbacks do the same and close or abandon the client. Each caller is told once, a loss is told once and only of a
// lock that is not over, nothing goes on without an end, and nothing is left.

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fuzz.hpp"
#include "unit/lock_fixture.hpp"

namespace {

using syncguard::error;
using syncguard::error_code;
using syncguard::result;
using syncguard::engine::operation;
using syncguard::engine::operation_kind;
using syncguard::engine::verdict;
using syncguard::fuzz::input;
using syncguard::testing::answers;
using syncguard::testing::lock_world;
using syncguard::testing::model_lane;
using syncguard::testing::model_server;
using syncguard::testing::wish;

constexpr std::size_t asked_max = 64;
constexpr std::size_t by_hand_max = 128;

constexpr std::array<std::int64_t, 6> times_to_live_ms{10, 11, 300, 3000, 30'000, 60'000};
constexpr std::array<std::int64_t, 6> patiences_ms{0, 1, 100, 2000, 5000, 50'000};

// One call of lock(), and what came of it.
struct call {
  std::string name;
  std::string key;
  bool answered = false;
  bool got = false;
  bool lost = false;
  bool over = false;  // released or dropped by its user
};

struct by_hand {
  bool answered = false;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
};

class run {
 public:
  explicit run(input& bytes) : bytes_(bytes), world_(options_from(bytes)) {
    world_.keeps_log = false;
    world_.one_place = bytes.flag();
    world_.inside_got = [this](const std::string& name) {
      call& which = answered(name);
      which.got = true;
      if (finishing_) return drop(&which);
      act_inside(&which);
    };
    world_.inside_refused = [this](const std::string& name) { act_inside(&answered(name)); };
    world_.inside_lost = [this](const std::string& name) {
      call& which = named(name);
      require(!quiet_ && alive());
      require(which.got && !which.lost && !which.over);
      require(!world_.valid(name));
      which.lost = true;
      act_inside(&which);
    };
    world_.server.fault = [this](const operation&) { return fault(); };
    world_.server.twist = [this](const operation& asked, model_server::answer& said) { twist(asked, said); };
    for (model_lane* lane : {&world_.plain, &world_.watched}) lane->delay_us = [this] { return delay_us_; };
    if (bytes.flag()) world_.links_up();
  }

  void all() {
    while (!bytes_.empty() && alive()) step();
    if (alive()) finish();
    require(!world_.hot);
  }

 private:
  static syncguard::testing::lock_world_options options_from(input& bytes) {
    constexpr std::array<std::size_t, 4> watched{10'000, 0, 1, 3};
    return {.keeper = {.watch_max = watched.at(bytes.below(4)), .seed = bytes.byte()}, .room_seed = bytes.byte()};
  }
  static bool take_one(unsigned& left) { return left > 0 && left-- > 0; }

  bool alive() const { return world_.plain.engine != nullptr; }
  call& named(const std::string& name) { return *calls_.at(static_cast<std::size_t>(std::stoul(name))); }
  call& answered(const std::string& name) {
    call& which = named(name);
    require(!quiet_ && alive() && !which.answered);
    which.answered = true;
    return which;
  }
  call* some_call(std::uint8_t choice) { return calls_.empty() ? nullptr : calls_.at(choice % calls_.size()).get(); }
  model_lane& some_lane(std::uint8_t choice) { return choice % 2 == 0 ? world_.plain : world_.watched; }
  std::string some_key() { return {static_cast<char>('a' + bytes_.below(4))}; }

  // Nothing may be told inside these.
  template <class Function>
  void quietly(Function&& function) {
    const bool before = std::exchange(quiet_, true);
    function();
    quiet_ = before;
  }

  void step() {
    switch (bytes_.below(20)) {
      case 0:
      case 1:
      case 2: return ask(bytes_.byte());
      case 3: return cancel(bytes_.byte());
      case 4: return extend(some_call(bytes_.byte()), bytes_.byte());
      case 5: return release(some_call(bytes_.byte()));
      case 6: return drop(some_call(bytes_.byte()));
      case 7:
      case 8: return world_.run_ms(bytes_.magnitude() % (short_lived_ ? 500 : 70'000));
      case 9: return world_.stall_ms(bytes_.magnitude() % 70'000);
      case 10: return link(bytes_.byte());
      case 11: return lane_settings(bytes_.byte());
      case 12: return change_record(bytes_.byte());
      case 13: return arrange_faults(bytes_.byte());
      case 14: return plan(bytes_.byte());
      case 15: return start_by_hand(bytes_.byte());
      case 16: return cancel_by_hand(bytes_.byte());
      case 17: return turn(bytes_.byte());
      case 18: delay_us_ = bytes_.magnitude() % 2'000'000; return;
      default: return end_it(bytes_.byte());
    }
  }

  void ask(std::uint8_t choice) {
    if (calls_.size() >= asked_max) return;
    auto made = std::make_unique<call>();
    made->name = std::to_string(calls_.size());
    made->key = {static_cast<char>('a' + choice % 4)};
    calls_.push_back(std::move(made));
    const call& which = *calls_.back();
    wish what;
    what.ttl_ms = times_to_live_ms.at(choice / 4 % times_to_live_ms.size());
    what.wait_ms = patiences_ms.at((choice / 24 + choice) % patiences_ms.size());
    what.heartbeat = choice % 7 != 0;
    short_lived_ = short_lived_ || what.ttl_ms < 1000;
    if (choice % 11 == 0) what.margin_ms = what.ttl_ms / 2;
    quietly([&] {
      if (!world_.closing) return world_.ask_for(which.name, which.key, what);
      // As the client does when it has been closed.
      world_.room->turn_away(
          [this, at = calls_.size() - 1](const result<syncguard::lock>& got) {
            require(!got);
            act_inside(&answered(calls_.at(at)->name));
          },
          {error_code::aborted, "the client has been closed"});
      turned_away_.push_back(which.name);
    });
  }
  void cancel(std::uint8_t choice) {
    const call* which = some_call(choice);
    if (which == nullptr || was_turned_away(*which)) return;
    quietly([&] {
      if (world_.cancel(which->name)) require(!which->answered);
    });
  }
  bool was_turned_away(const call& which) const {
    return std::find(turned_away_.begin(), turned_away_.end(), which.name) != turned_away_.end();
  }
  syncguard::lock* lock_of(const call* which) {
    const auto found = which != nullptr ? world_.locks.find(which->name) : world_.locks.end();
    return found != world_.locks.end() ? &found->second : nullptr;
  }
  template <class Value>
  syncguard::callback<result<Value>> counted() {
    by_hand_.push_back(std::make_unique<by_hand>());
    return [this, one = by_hand_.back().get()](const result<Value>&) {
      require(!quiet_ && alive() && !one->answered);
      one->answered = true;
      act_inside(nullptr);
    };
  }
  void extend(call* which, std::uint8_t choice) {
    syncguard::lock* lock = lock_of(which);
    if (lock == nullptr || by_hand_.size() >= by_hand_max) return;
    const std::chrono::milliseconds ttl{choice % 16 == 15 ? 1 : times_to_live_ms.at(choice % times_to_live_ms.size())};
    quietly([&] { lock->extend(ttl, counted<std::optional<syncguard::server_time>>()); });
  }
  void release(call* which) {
    syncguard::lock* lock = lock_of(which);
    if (lock == nullptr || by_hand_.size() >= by_hand_max) return;
    quietly([&] { lock->release(counted<bool>()); });
    require(!lock->valid());
    which->over = true;
  }
  void drop(call* which) {
    if (lock_of(which) == nullptr) return;
    which->over = true;
    quietly([&] { world_.drop(which->name); });
  }

  void link(std::uint8_t choice) {
    model_lane& lane = some_lane(choice);
    if (choice % 4 < 2 && !lane.engine->up()) return world_.link_up(lane);
    world_.link_down(lane, choice % 3 == 0 ? error_code::auth_failed : error_code::service_unavailable,
                     choice % 5 == 0);
  }
  void lane_settings(std::uint8_t choice) {
    model_lane& lane = some_lane(choice);
    lane.arrival = static_cast<answers>(choice / 2 % 3);
    lane.server_reads = choice / 6 % 4 != 0;
  }
  void change_record(std::uint8_t choice) {
    const std::string key = some_key();
    switch (choice % 6) {
      case 0: return world_.server.take(key, times_to_live_ms.at(choice / 8 % times_to_live_ms.size()));
      case 1: return world_.server.remove(key);
      case 2: return world_.server.touch(key);
      case 3: return world_.server.let_linger(key);
      case 4: return world_.server.spoil(key);
      default: return world_.server.flush();
    }
  }
  void arrange_faults(std::uint8_t choice) {
    switch (choice % 3) {
      case 0:
        faults_left_ = choice / 16U + 1;
        fault_code_ = static_cast<error_code>(choice / 3 % 8);
        return;
      case 1:
        twists_left_ = choice / 16U + 1;
        twist_verdict_ = static_cast<verdict>(bytes_.below(13));
        twist_number_ = bytes_.byte();
        return;
      default: world_.server.knows_scripts = false;
    }
  }
  std::optional<error> fault() {
    if (!take_one(faults_left_)) return std::nullopt;
    return error{fault_code_, "the server does not want to"};
  }
  // What a server may say that is not well: as far as the codec lets it through.
  void twist(const operation& asked, model_server::answer& said) {
    if (!take_one(twists_left_)) return;
    constexpr std::array<std::int64_t, 5> times_ms{0, 1, -999'999'999'999, 9'999'999'999'999, 1'700'000'000'000};
    said.what = twist_verdict_;
    if (said.what == verdict::acquired && asked.kind != operation_kind::acquire) said.what = verdict::failed;
    said.fence = said.what == verdict::acquired ? twist_number_ + 1U : said.fence;
    said.expires_at_ms = times_ms.at(twist_number_ % times_ms.size());
    if (class_of(asked.kind) == syncguard::engine::travel_class::mutation)
      said.server_now_ms = times_ms.at(twist_number_ / 8U % times_ms.size());
    if (said.what == verdict::failed) said.failure = error{error_code::internal, "it makes no sense"};
  }

  void plan(std::uint8_t first) {
    plans_.push_back(first);
    for (std::size_t left = first % 4; left > 0; --left) plans_.push_back(bytes_.byte());
  }
  // What a callback does; `which` is the call that it belongs to.
  void act_inside(call* which) {
    if (plans_.empty() || !alive()) return;
    const std::uint8_t what = plans_.front();
    plans_.pop_front();
    const auto choice = static_cast<std::uint8_t>(what / 12 * 5);
    switch (what % 12) {
      case 0:
      case 1: return ask(choice);
      case 2: return drop(which);
      case 3: return release(which);
      case 4: return extend(which, choice);
      case 5: return cancel(choice);
      case 6: return drop(some_call(choice));
      case 7: return release(some_call(choice));
      case 8: return start_by_hand(choice);
      case 9:
        if (lock_of(which) != nullptr) world_.watch_loss(which->name);  // nothing more is told of what is over
        return;
      case 10: return cancel_by_hand(choice);
      default: return end_it(choice);
    }
  }

  void start_by_hand(std::uint8_t choice) {
    if (by_hand_.size() >= by_hand_max) return;
    constexpr std::array kinds{operation_kind::acquire, operation_kind::release, operation_kind::extend,
                               operation_kind::lookup_id};
    const operation_kind kind = kinds.at(choice % kinds.size());
    const std::string key{static_cast<char>('a' + choice / 4 % 4)};
    const auto id =
        syncguard::lock_id::from_bytes(std::array<std::uint8_t, 16>{static_cast<std::uint8_t>(choice / 16)});
    quietly([&] {
      const operation* started = world_.plain.engine->start(
          {kind, key, id, times_to_live_ms.at(choice % times_to_live_ms.size())}, counted<bool>(), world_.now_us());
      by_hand_.back()->slot = started->slot;
      by_hand_.back()->generation = started->generation;
    });
  }
  void cancel_by_hand(std::uint8_t choice) {
    if (by_hand_.empty()) return;
    const by_hand& which = *by_hand_.at(choice % by_hand_.size());
    quietly([&] { world_.plain.engine->cancel(which.slot, which.generation, world_.now_us()); });
  }

  void turn(std::uint8_t choice) {
    if (choice % 3 == 0) return world_.end_turn();
    if (choice % 3 == 1) return world_.run_timers();
    world_.settle_down();
  }
  void end_it(std::uint8_t choice) {
    if (choice % 8 == 1) quietly([this] { world_.close(); });
    if (choice % 32 == 2) quietly([this] { world_.abandon(); });
  }

  // With a server that answers, everything comes to an end.
  void finish() {
    constexpr std::int64_t long_ms = 200'000;
    plans_.clear();
    finishing_ = true;
    faults_left_ = twists_left_ = 0;
    delay_us_ = 0;
    for (const char key : {'a', 'b', 'c', 'd'}) world_.server.remove({&key, 1});
    for (model_lane* lane : {&world_.plain, &world_.watched}) {
      lane->arrival = answers::come;
      lane->server_reads = true;
      if (!lane->engine->up()) world_.link_up(*lane);
    }
    // Either way nothing is held for long: heartbeats would take most of the time.
    if (calls_.size() % 2 == 0) world_.close();
    for (const auto& each : calls_)
      if (!world_.closing) drop(each.get());
    world_.run_ms(long_ms);
    for (const auto& each : calls_) require(each->answered);
    if (!world_.closing) world_.close();
    world_.settle_down();
    for (const auto& each : calls_) require(!each->got || each->over || each->lost);
    for (const auto& each : by_hand_) require(each->answered);
    require(world_.plain.engine->pending() == 0 && world_.watched.engine->pending() == 0);
    require(world_.room->size() == 0 && world_.keeper->size() == 0);
    require(!world_.next_event_us());
  }

  input& bytes_;
  lock_world world_;
  std::vector<std::unique_ptr<call>> calls_;
  std::vector<std::unique_ptr<by_hand>> by_hand_;
  std::vector<std::string> turned_away_;
  std::deque<std::uint8_t> plans_;
  bool quiet_ = false;
  bool finishing_ = false;
  bool short_lived_ = false;  // then time passes in small steps: heartbeats are many
  std::int64_t delay_us_ = 0;
  unsigned faults_left_ = 0;
  error_code fault_code_ = error_code::service_unavailable;
  unsigned twists_left_ = 0;
  verdict twist_verdict_ = verdict::failed;
  std::uint8_t twist_number_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input bytes{data, std::min<std::size_t>(size, 512)};
  run{bytes}.all();
  return 0;
}

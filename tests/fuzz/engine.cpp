// Any sequence of events at an engine: operations start and are cancelled, the link comes and goes, answers say
// anything, scripts are missing, time passes, and callbacks start, cancel and destroy. Each caller is told once, never
// inside the call that started or cancelled something, and in the end nothing is left.

#include "engine/engine.hpp"

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "fuzz.hpp"
#include "unit/engine_fixture.hpp"

namespace {

using syncguard::error_code;
using syncguard::engine::operation_kind;
using syncguard::engine::travel_class;
using syncguard::engine::verdict;
using syncguard::fuzz::input;
using syncguard::testing::engine_world;
using syncguard::testing::said;

constexpr std::size_t operations_max = 200;

class run {
 public:
  explicit run(input& bytes)
      : bytes_(bytes), world_({.timeout_ms = 5000, .max_pending = 12, .cleanup_in_is_locked = bytes.flag()}) {
    world_.inside = [this](const std::string&) {
      require(!quiet_);
      act_inside();
    };
    world_.inside_poll = [this] {
      if (polls_answer_) answer_one();
    };
  }

  void all() {
    while (!bytes_.empty() && alive()) step();
    if (alive()) finish();
    for (const auto& [name, times] : world_.callbacks_run()) require(times <= 1);
  }

 private:
  bool alive() const { return world_.subject != nullptr; }

  void step() {
    switch (bytes_.below(16)) {
      case 0:
      case 1: return start();
      case 2: return start_many();
      case 3: return cancel();
      case 4:
      case 5: return world_.end_turn();
      case 6: return world_.jump_ms(bytes_.magnitude() % 100'000);
      case 7: return link();
      case 8:
      case 9:
      case 10: return answer_one();
      case 11: return script_missing();
      case 12: plans_.push_back(bytes_.byte()); return;
      case 13: return give_back();
      case 14: polls_answer_ = bytes_.flag(); return;
      default:
        if (bytes_.below(8) == 0) world_.subject->stop_accepting();
        if (bytes_.below(32) == 31) world_.subject.reset();
    }
  }

  static operation_kind kind_of(std::uint8_t choice) {
    constexpr std::array kinds{operation_kind::acquire,   operation_kind::acquire,   operation_kind::release,
                               operation_kind::extend,    operation_kind::is_locked, operation_kind::lookup_key,
                               operation_kind::lookup_id, operation_kind::is_locked};
    return kinds.at(choice % kinds.size());
  }

  void start_named(std::uint8_t choice) {
    if (names_.size() >= operations_max) return;
    names_.push_back("o" + std::to_string(names_.size()));
    quiet_ = true;
    world_.start(kind_of(choice), names_.back());
    quiet_ = false;
  }
  void start() { start_named(bytes_.byte()); }
  void start_many() {
    const std::uint8_t choice = bytes_.byte();
    for (std::size_t left = bytes_.below(40); left > 0; --left) start_named(choice);
  }
  void cancel_named(std::uint8_t which) {
    if (names_.empty()) return;
    quiet_ = true;
    world_.cancel(names_.at(which % names_.size()));
    quiet_ = false;
  }
  void cancel() { cancel_named(bytes_.byte()); }
  void give_back() {
    if (names_.empty()) return;
    quiet_ = true;
    world_.subject->give_back(syncguard::lock_id::from_bytes(std::array<std::uint8_t, 16>{'o', '0'}),
                              bytes_.magnitude() % 100'000, world_.now_us);
    quiet_ = false;
  }

  void link() {
    const std::uint8_t how = bytes_.byte();
    if (how % 2 == 0 && !world_.subject->up()) return world_.link_up();
    world_.link_down(how % 3 == 0 ? error_code::auth_failed : error_code::service_unavailable, how % 5 == 0);
  }

  void answer_one() {
    if (!alive() || world_.in_flight.empty()) return;
    std::vector<said> words;
    for (std::size_t left = 1 + bytes_.below(4); left > 0; --left) {
      const std::uint8_t word = bytes_.byte();
      words.push_back({static_cast<verdict>(word % 13), (word & 64) != 0, word >= 240});
    }
    world_.answer(words);
  }
  void script_missing() {
    if (world_.in_flight.empty() || world_.in_flight.front()->kind == travel_class::key_read) return;
    quiet_ = true;
    world_.script_missing();
    quiet_ = false;
  }

  // What a callback does.
  void act_inside() {
    if (plans_.empty() || !alive()) return;
    const std::uint8_t plan = plans_.front();
    plans_.pop_front();
    const auto which = static_cast<std::uint8_t>(plan >> 3);
    switch (plan & 7) {
      case 0:
      case 1: return start_named(which);
      case 2:
      case 3: return cancel_named(which);
      case 4: return world_.end_turn();
      case 5:
        for (std::uint8_t left = which; left > 0; --left) start_named(left);
        return;
      case 6:
        for (std::uint8_t left = which; left > 0; --left) cancel_named(left);
        return;
      default:
        if (which >= 28) world_.subject.reset();
    }
  }

  // With a server that answers, everything comes to an end.
  void finish() {
    plans_.clear();
    polls_answer_ = false;
    if (!world_.subject->up()) world_.link_up();
    for (int rounds = 0; rounds < 1000; ++rounds) {
      world_.turn_end_wanted = false;
      world_.end_turn();
      while (!world_.in_flight.empty()) world_.answer(verdict::absent);
      if (!world_.turn_end_wanted) break;
    }
    require(!world_.turn_end_wanted);
    require(world_.subject->pending() == 0);
    require(!world_.subject->next_wake_ms());
    require(world_.callbacks_run().size() == names_.size());
    for (const auto& [name, times] : world_.callbacks_run()) require(times == 1);
    const auto& stats = world_.subject->stats();
    require(stats.started == names_.size() && stats.completed == names_.size());
  }

  input& bytes_;
  engine_world world_;
  std::vector<std::string> names_;
  std::deque<std::uint8_t> plans_;
  bool quiet_ = false;
  bool polls_answer_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input bytes{data, std::min<std::size_t>(size, 1024)};
  run{bytes}.all();
  return 0;
}

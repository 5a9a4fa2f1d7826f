// The one timer that a client has in its loop: an idle client wakes nobody, so it must not stay armed.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"
#include "redis/event_loop.hpp"

namespace syncguard::testing {

namespace {

struct timer_notes {
  bool armed = false;
  int armed_times = 0;
};

// A loop that writes down what is done with its timer.
class noted_loop final : public redis::event_loop, public redis::loop_sink {
 public:
  explicit noted_loop(std::shared_ptr<timer_notes> notes) : notes_(std::move(notes)) {}

  void open(redis::loop_sink& sink) override {
    sink_ = &sink;
    real_->open(*this);
  }
  bool attach(redisAsyncContext& connection) override { return real_->attach(connection); }
  void arm(std::int64_t delay_ms) override {
    notes_->armed = true;
    ++notes_->armed_times;
    real_->arm(delay_ms);
  }
  void disarm() override {
    notes_->armed = false;
    real_->disarm();
  }
  void want_turn_end() override { real_->want_turn_end(); }
  void resolve(const std::string& host) override { real_->resolve(host); }
  void cancel_resolve() override { real_->cancel_resolve(); }

  void on_turn_end() override { sink_->on_turn_end(); }
  void on_timer() override {
    notes_->armed = false;
    sink_->on_timer();
  }
  void on_resolved(std::vector<std::string> addresses, std::string_view why) override {
    sink_->on_resolved(std::move(addresses), why);
  }

 private:
  std::unique_ptr<redis::event_loop> real_ = loop_for_client().take();
  redis::loop_sink* sink_ = nullptr;
  std::shared_ptr<timer_notes> notes_;
};

void timer_of_operations_that_are_over_is_disarmed(void**) {
  const auto notes = std::make_shared<timer_notes>();
  subject_owner() = std::make_unique<client>(loop{std::make_unique<noted_loop>(notes)}, base_options());
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  for (int round = 0; round < 3; ++round) {
    const int before = notes->armed_times;
    assert_true(must(await_release(hold("k").id)));
    assert_true(notes->armed_times > before);
    assert_true(run_until([&] { return !notes->armed; }, 2s));
  }
}

// A loop without a client.
struct bare final : redis::loop_sink {
  std::unique_ptr<redis::event_loop> where = loop_for_client().take();
  int fired = 0;

  bare() { where->open(*this); }

  void on_turn_end() override {}
  void on_timer() override { ++fired; }
  void on_resolved(std::vector<std::string>, std::string_view) override {}
};

std::unique_ptr<bare> here;

int set_up_bare(void** state) {
  if (set_up(state) != 0) return -1;
  here = std::make_unique<bare>();
  return 0;
}

int tear_down_bare(void** state) {
  here.reset();
  return tear_down(state);
}

void timer_fires_once(void**) {
  here->where->arm(5);
  assert_true(run_until([] { return here->fired > 0; }));
  run_for(50ms);
  assert_int_equal(here->fired, 1);
}

void timer_that_was_disarmed_does_not_fire(void**) {
  here->where->arm(20);
  here->where->disarm();
  run_for(60ms);
  assert_int_equal(here->fired, 0);
  here->where->arm(5);
  assert_true(run_until([] { return here->fired > 0; }));
}

#define bare_case(name) cmocka_unit_test_setup_teardown(name, set_up_bare, tear_down_bare)

}  // namespace

cases loop_timer_cases() {
  static const CMUnitTest all[] = {
      contract_case_alone(timer_of_operations_that_are_over_is_disarmed),
      bare_case(timer_fires_once),
      bare_case(timer_that_was_disarmed_does_not_fire),
  };
  return all;
}

}  // namespace syncguard::testing

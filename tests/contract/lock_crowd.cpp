// Many calls of lock() for one key in one client: served in the order of arrival.

#include <algorithm>
#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

struct crowd {
  std::vector<int> served;
  std::vector<int> refused;
  int holders = 0;
};

// Holds for no time: the lock ends with the callback.
operation_handle join(const std::shared_ptr<crowd>& of, int number, client& by = subject()) {
  return by.lock("k", {.ttl = 60s, .wait = 10min}, [of, number](result<syncguard::lock> got) {
    if (!got) {
      of->refused.push_back(number);
      return;
    }
    if (!got->valid()) breach("a lock was granted that is not valid");
    of->served.push_back(number);
  });
}

void waiters_are_served_in_the_order_of_arrival(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  warm_up();
  const auto all = std::make_shared<crowd>();
  for (int number = 0; number < 100; ++number) {
    join(all, number);
    if (number % 7 == 0) turn();
  }
  run_for(30ms);
  assert_int_equal(subject().stats().waiting, 100);
  assert_int_equal(all->served.size(), 0);
  theirs.reset();
  assert_true(run_until([&] { return all->served.size() == 100; }));
  assert_true(std::is_sorted(all->served.begin(), all->served.end()));
  assert_int_equal(subject().stats().waiting, 0);
}

// Each holds the lock over several turns, and never two at once.
void waiters_hold_one_at_a_time(void**) {
  const auto all = std::make_shared<crowd>();
  const auto held = std::make_shared<syncguard::lock>();
  for (int number = 0; number < 30; ++number) {
    subject().lock("k", steady, [all, held, number](result<syncguard::lock> got) {
      if (!got) return;
      if (++all->holders != 1) breach("two hold one lock");
      all->served.push_back(number);
      *held = *std::move(got);
    });
  }
  for (std::size_t done = 0; done < 30; ++done) {
    assert_true(run_until([&] { return all->served.size() > done; }));
    run_for(2ms);
    assert_int_equal(all->served.size(), done + 1);
    --all->holders;
    *held = {};
  }
  assert_true(std::is_sorted(all->served.begin(), all->served.end()));
}

void ten_thousand_waiters_of_which_a_thousand_leave_are_served_in_order(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  warm_up();
  const auto all = std::make_shared<crowd>();
  std::vector<operation_handle> handles;
  for (int number = 0; number < 10'000; ++number) handles.push_back(join(all, number));
  run_for(30ms);
  assert_int_equal(subject().stats().waiting, 10'000);
  for (std::size_t number = 0; number < handles.size(); number += 10) assert_true(subject().cancel(handles[number]));
  assert_true(run_until([&] { return all->refused.size() == 1'000; }));
  assert_int_equal(subject().stats().waiting, 9'000);
  assert_int_equal(all->served.size(), 0);
  theirs.reset();
  const std::uint64_t attempts = subject().stats().attempts;
  assert_true(run_until([&] { return all->served.size() == 9'000; }, 240s));
  assert_true(std::is_sorted(all->served.begin(), all->served.end()));
  assert_true(std::none_of(all->served.begin(), all->served.end(), [](int number) { return number % 10 == 0; }));
  assert_int_equal(all->refused.size(), 1'000);
  const std::uint64_t made = subject().stats().attempts - attempts;
  note("%llu attempts for 9000 grants", static_cast<unsigned long long>(made));
  assert_true(made >= 9'000 && made <= 10'000);
}

void waiters_of_two_clients_are_all_served(void**) {
  warm_up();
  warm_up(rival());
  const auto ours = std::make_shared<crowd>();
  const auto theirs = std::make_shared<crowd>();
  for (int number = 0; number < 100; ++number) {
    join(ours, number);
    join(theirs, number, rival());
  }
  assert_true(run_until([&] { return ours->served.size() == 100 && theirs->served.size() == 100; }, 60s));
  assert_true(std::is_sorted(ours->served.begin(), ours->served.end()));
  assert_true(std::is_sorted(theirs->served.begin(), theirs->served.end()));
}

}  // namespace

cases lock_crowd_cases() {
  static const CMUnitTest all[] = {
      contract_case(waiters_are_served_in_the_order_of_arrival),
      contract_case(waiters_hold_one_at_a_time),
      contract_case(ten_thousand_waiters_of_which_a_thousand_leave_are_served_in_order),
      contract_case(waiters_of_two_clients_are_all_served),
  };
  return all;
}

}  // namespace syncguard::testing

#include <syncguard/result.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <type_traits>

#include "support/cmocka.hpp"

namespace {

using syncguard::error;
using syncguard::error_code;
using syncguard::result;

static_assert(!std::is_default_constructible_v<result<int>>, "a result is a value or an error, never nothing");
static_assert(std::is_nothrow_move_constructible_v<result<std::unique_ptr<int>>>);
static_assert(!std::is_convertible_v<result<int>, bool>, "only where a condition is asked for");

error late() { return {error_code::network_timeout, "late"}; }

void value_is_reached_and_moved_out(void**) {
  result<std::unique_ptr<int>> got = std::make_unique<int>(7);
  assert_true(got.has_value());
  assert_int_equal(**got, 7);
  const std::unique_ptr<int> taken = *std::move(got);
  assert_int_equal(*taken, 7);
}

void members_are_reached_through_the_arrow(void**) {
  result<std::string_view> got = std::string_view{"abc"};
  assert_int_equal(got->size(), 3);
  const auto& view = got;
  assert_int_equal(view->size(), 3);
  assert_int_equal((*view).size(), 3);
}

void error_is_reached_and_moved_out(void**) {
  result<int> failed = late();
  assert_false(static_cast<bool>(failed));
  assert_text_equal(failed.error().message(), "late");
  failed.error().with_context("k", "", "");
  const error taken = std::move(failed).error();
  assert_text_equal(taken.key(), "k");
}

void result_can_change_sides(void**) {
  result<int> got = 1;
  got = late();
  assert_false(got.has_value());
  got = 2;
  assert_int_equal(*got, 2);
}

void success_without_a_value(void**) {
  const result<void> fine;
  assert_true(fine.has_value());
  result<void> failed = late();
  assert_false(static_cast<bool>(failed));
  failed.error().with_context("k", "", "");
  assert_text_equal(std::as_const(failed).error().key(), "k");
  assert_text_equal(std::move(failed).error().message(), "late");
}

// What a child process that does `misuse` dies of.
template <class Misuse>
int signal_of(Misuse misuse) {
  const pid_t child = fork();
  if (child == 0) {
    close(2);  // the message of std::terminate
    signal(SIGABRT, SIG_DFL);
    misuse();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void misuse_ends_the_program(void**) {
  assert_int_equal(signal_of([] { static_cast<void>(*result<int>{late()}); }), SIGABRT);
  assert_int_equal(signal_of([] { static_cast<void>(result<int>{1}.error()); }), SIGABRT);
  assert_int_equal(signal_of([] { static_cast<void>(result<void>{}.error()); }), SIGABRT);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(value_is_reached_and_moved_out), cmocka_unit_test(members_are_reached_through_the_arrow),
      cmocka_unit_test(error_is_reached_and_moved_out), cmocka_unit_test(result_can_change_sides),
      cmocka_unit_test(success_without_a_value),        cmocka_unit_test(misuse_ends_the_program),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#include "faults/cut_world.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace syncguard::testing {

namespace {

constexpr std::size_t seat_count = 192;

// Each seat needs up to eight descriptors, in the client and in the proxy.
bool allow_descriptors() {
  rlimit now{};
  if (getrlimit(RLIMIT_NOFILE, &now) != 0) return false;
  now.rlim_cur = std::min<rlim_t>(now.rlim_max, 8192);
  return setrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur >= seat_count * 8 + 64;
}

// Keys of locks and of their indexes; fence counters stay for ever.
constexpr const char* leftovers_script =
    "local left = {} for _, key in ipairs(redis.call('KEYS', 'syncguard:*')) do "
    "if string.sub(key, 1, 16) ~= 'syncguard:fence:' then left[#left + 1] = key end end return left";

}  // namespace

cut_world& cuts() {
  static cut_world the_world;
  return the_world;
}

std::string cut_world::fresh_key() {
  char text[16];
  std::snprintf(text, sizeof text, "key-%07zu", ++keys_made % 10'000'000);  // all of one length
  return text;
}

client& cut_world::reseat(seat& which, milliseconds timeout, milliseconds connect_timeout) const {
  which.own.reset();
  client_options options;
  options.url = which.way->url();
  options.timeout = timeout > 0ms ? timeout : steadfast;
  options.connect_timeout = connect_timeout > 0ms ? connect_timeout : steadfast;
  options.release_timeout = steadfast;
  options.reconnect_min = options.reconnect_max = 1ms;
  which.own = std::make_unique<client>(loop_for_client(), std::move(options));
  return *which.own;
}

std::string cut_world::owner_of(std::string_view key) const {
  const std::string record = inspector->command({"GET", lock_key(key)}).text;
  constexpr std::string_view field = "\"lockId\":\"";
  const auto at = record.find(field);
  return at == std::string::npos ? "" : record.substr(at + field.size(), 22);
}

long long cut_world::held_among(const std::vector<std::string>& keys) const {
  std::vector<std::string> command{"EXISTS"};
  for (const std::string& key : keys) command.push_back(lock_key(key));
  return keys.empty() ? 0 : inspector->command(command).integer;
}

int set_up_cuts(void** state) {
  if (!allow_descriptors()) {
    print_error("the limit of open files is too low for %zu clients\n", seat_count);
    return -1;
  }
  if (set_up(state) != 0) return -1;
  cut_world& here = cuts();
  here.inspector = std::make_unique<watching_connection>(server());
  here.proxy = std::make_unique<cutting_proxy>(server().socket_path());
  here.seats.resize(seat_count);
  for (seat& each : here.seats) {
    each.way = here.proxy->make_gate();
    if (each.way == nullptr) return -1;
  }
  return 0;
}

void nothing_is_left() {
  redis_reply left;
  const auto is_empty = [&] {
    left = cuts().inspector->command({"EVAL", leftovers_script, "0"});
    return left.elements.empty();
  };
  if (run_until(is_empty)) return;
  fail_msg("%zu keys were left behind, such as %s", left.elements.size(), left.elements[0].text.c_str());
}

int tear_down_cuts(void** state) {
  cut_world& here = cuts();
  here.seats.clear();
  const int outcome = tear_down(state);
  here.proxy.reset();
  here.inspector.reset();
  return outcome;
}

#if defined(__SANITIZE_ADDRESS__)
#define SYNCGUARD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SYNCGUARD_SANITIZED 1
#endif
#endif

std::size_t long_stride() {
  if (const char* given = std::getenv("SYNCGUARD_CUT_STRIDE")) return std::max(1UL, std::strtoul(given, nullptr, 10));
#ifdef SYNCGUARD_SANITIZED
  return 41;
#else
  return 1;
#endif
}

const char* name_of(fate how) {
  switch (how) {
    case fate::reset: return "reset";
    case fate::close: return "close";
    case fate::stall: return "stall";
  }
  return "";
}

const char* name_of(direction where) { return where == direction::request ? "request" : "reply"; }

}  // namespace syncguard::testing

#pragma once

// What happened, for a person to read, and what should not have happened.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace syncguard::sim {

// When every history begins.
inline constexpr std::int64_t began_us = 1'000'000'000;

enum class fault : std::uint8_t {
  reset,
  half_open,
  delay,
  unreachable,
  server_pause,
  stall,
  clock_back,
  clock_ahead,
  restart,
  restart_empty,
  script_flush,
  error_reply,
  demotion,
  refused_login,
  garbled_answer,
  out_of_memory,
  unreadable,
  foreign_delete,
  foreign_flush,
  foreign_owner,
  foreign_touch,
  client_gone,
  late_request,
};
inline constexpr std::size_t fault_count = 23;

inline std::string_view name_of(fault what) {
  static constexpr std::array<std::string_view, fault_count> names{
      "reset",         "half_open",     "delay",          "unreachable",   "server_pause", "stall",
      "clock_back",    "clock_ahead",   "restart",        "restart_empty", "script_flush", "error_reply",
      "demotion",      "refused_login", "garbled_answer", "out_of_memory", "unreadable",   "foreign_delete",
      "foreign_flush", "foreign_owner", "foreign_touch",  "client_gone",   "late_request"};
  return names.at(static_cast<std::size_t>(what));
}

// What a history was made of: without locks that are held and lost, it would prove nothing.
struct tally {
  std::array<std::uint64_t, fault_count> faults{};
  std::uint64_t histories = 0;
  std::uint64_t calls = 0;   // operations and calls of lock() that users made
  std::uint64_t locks = 0;   // lock objects that users got
  std::uint64_t losses = 0;  // of these, told lost
  std::uint64_t grants = 0;  // by hand
  std::uint64_t steps = 0;   // of the clients
  std::uint64_t checks = 0;  // of a lock that said it was valid

  std::uint64_t all_faults() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t each : faults) sum += each;
    return sum;
  }
  void add(const tally& other) {
    for (std::size_t index = 0; index < fault_count; ++index) faults.at(index) += other.faults.at(index);
    histories += other.histories;
    calls += other.calls;
    locks += other.locks;
    losses += other.losses;
    grants += other.grants;
    steps += other.steps;
    checks += other.checks;
  }
};

class journal {
 public:
  explicit journal(bool written) : written_(written) {}

  // Whether it is worth while to make a text.
  bool on() const noexcept { return written_; }

  void line(std::int64_t now_us, std::string_view who, std::string_view what) {
    if (!written_) return;
    std::printf("%10.3f ms  %-7.*s %.*s\n", static_cast<double>(now_us) / 1000, static_cast<int>(who.size()),
                who.data(), static_cast<int>(what.size()), what.data());
  }

  // The first one counts: what follows may be its consequence.
  void violate(std::int64_t now_us, std::string_view who, std::string what) {
    if (!violation_.empty()) return;
    line(now_us, who, "VIOLATION: " + what);
    violation_ = std::string{who} + ": " + std::move(what);
  }
  const std::string& violation() const noexcept { return violation_; }

  void count(fault what) { ++sums.faults.at(static_cast<std::size_t>(what)); }

  tally sums;

 private:
  bool written_;
  std::string violation_;
};

}  // namespace syncguard::sim

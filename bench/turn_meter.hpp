#pragma once

// How long the turns of a libuv loop are: from where it leaves the poll to where it polls again, with everything that
// runs in between.
//
// libuv runs the callbacks of sockets inside its poll phase, so a check handle would come too late. Instead, what the
// loop itself counts as idle is taken off the time from one prepare callback to the next. That is right in sum wherever
// in the turn this prepare callback runs; libuv runs the one that was started last first, and a client starts its own
// anew in each turn, so this one comes after it.
//
// On a machine that others use as well, a turn may be interrupted. So the CPU time of the thread is measured, too: it
// leaves that out, but has the system calls of polling in it.

#include <cstdint>
#include <vector>

#include <uv.h>

namespace syncguard::bench {

// Durations, to the microsecond.
//
// Allocates: at set-up.
class duration_histogram {
 public:
  duration_histogram() : counts_(buckets) {}

  void add(std::uint64_t ns) noexcept;
  void clear() noexcept;
  double max_us() const noexcept { return static_cast<double>(max_ns_) / 1000; }
  double percentile_us(double share) const noexcept;
  std::uint64_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t buckets = 100'000;  // the last is for all that is longer

  std::vector<std::uint32_t> counts_;
  std::uint64_t size_ = 0;
  std::uint64_t max_ns_ = 0;
};

// Lifetime: the loop is the caller's, and was set up by configure() before it ran. After the end of this, it must turn
//   once more.
class turn_meter {
 public:
  static void configure(uv_loop_t* loop) { uv_loop_configure(loop, UV_METRICS_IDLE_TIME); }

  explicit turn_meter(uv_loop_t* loop);
  ~turn_meter();

  turn_meter(const turn_meter&) = delete;
  turn_meter& operator=(const turn_meter&) = delete;

  // Forgets everything.
  void clear() noexcept;

  // The turn that goes on does not count: something that is not to be measured is done in it.
  void skip() noexcept { anchored_ = false; }

  const duration_histogram& wall() const noexcept { return wall_; }
  const duration_histogram& cpu() const noexcept { return cpu_; }

 private:
  struct reading {
    std::uint64_t wall_ns;
    std::uint64_t idle_ns;
    std::uint64_t cpu_ns;
  };

  void turn_ended() noexcept;

  uv_loop_t* loop_;
  uv_prepare_t* handle_;  // closed by the loop after this object is gone
  duration_histogram wall_;
  duration_histogram cpu_;
  reading last_{};
  bool anchored_ = false;
};

}  // namespace syncguard::bench

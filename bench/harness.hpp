#pragma once

// What a benchmark of an event-driven client needs: lanes that keep operations in flight for a while, the figures of
// such a round, and a table and a JSON file of them.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <uv.h>

namespace syncguard::bench {

using clock = std::chrono::steady_clock;

// When a round is over: after so much time or so many operations, whichever comes first.
struct round_limit {
  clock::duration time = std::chrono::seconds{10};
  std::uint64_t operations = std::numeric_limits<std::uint64_t>::max();
};

struct sample {
  double operations_per_s = 0;
  double cpu_us_per_operation = 0;  // of this process, so the server's is not in it
  double allocations_per_operation = 0;
};

// Lanes that each keep one operation in flight, one round at a time. A lane asks go_on() when its operation completes,
// and starts the next one where the answer is yes.
//
// Errors: a lane that sees a wrong outcome says so through fail(); then the round ends, and so should the program.
class traffic {
 public:
  explicit traffic(uv_loop_t* loop);
  ~traffic();

  traffic(const traffic&) = delete;
  traffic& operator=(const traffic&) = delete;

  // Starts every lane by start(lane), then turns the loop until all of them have ended.
  //
  // Returns: nothing where a lane failed, or nothing happened for a long time.
  template <class Start>
  std::optional<sample> run(std::size_t lanes, round_limit limit, Start start) {
    begin(lanes, limit);
    for (std::size_t lane = 0; lane < lanes; ++lane) start(lane);
    return finish();
  }

  // Counts the operations that a lane has completed. Where it returns false, the lane has ended.
  bool go_on(std::uint64_t operations = 1) noexcept {
    constexpr std::uint64_t clock_every = 64;  // asking for the time costs as much as a fast operation
    completed_ += operations;
    if (++asked_ % clock_every == 0 && clock::now() >= deadline_) over_ = true;
    if (completed_ >= limit_) over_ = true;
    if (over_) end_lane();
    return !over_;
  }

  // Ends the lane that calls, and leaves the others alone.
  void end(std::uint64_t operations = 1) noexcept {
    completed_ += operations;
    end_lane();
  }

  // Ends the lane that calls, and the round.
  void fail(std::string_view why);
  const std::string& failure() const noexcept { return failure_; }

 private:
  struct reading {
    clock::time_point at;
    double cpu_us;
  };
  static reading read_clocks();

  void begin(std::size_t lanes, round_limit limit);
  std::optional<sample> finish();
  void end_lane() noexcept {
    if (--open_ == 0) uv_stop(loop_);
  }

  uv_loop_t* loop_;
  uv_timer_t* watchdog_;  // closed by the loop after this object is gone
  std::size_t open_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t asked_ = 0;
  std::uint64_t limit_ = 0;
  std::uint64_t allocations_before_ = 0;
  clock::time_point deadline_;
  reading before_{};
  bool over_ = false;
  std::string failure_;
};

double median(std::vector<double> values);

// The rounds of one contender.
struct series {
  std::vector<sample> rounds;

  double operations_per_s() const;
  double cpu_us_per_operation() const;
  double allocations_per_operation() const;
  double spread() const;  // of the middle half of the rounds, as a part of the median
};

struct row {
  std::string name;
  series ours;  // no rounds: not measured
  series baseline;

  // The median over pairs of rounds, one right after the other: what else the machine does changes from second to
  // second, and hits both of them.
  double ratio() const;
};

void print_table(const std::vector<row>& rows);

// Returns: whether the file was written as a whole.
[[nodiscard]] bool write_json(const std::string& path, const std::vector<row>& rows);

}  // namespace syncguard::bench

#include "harness.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "support/allocation_counter.hpp"

namespace syncguard::bench {

namespace {

constexpr std::uint64_t watchdog_ms = 30'000;

const testing::allocation_counter process_allocations;

template <class Member>
double median_of(const std::vector<sample>& rounds, Member member) {
  std::vector<double> values;
  values.reserve(rounds.size());
  for (const sample& round : rounds) values.push_back(round.*member);
  return median(std::move(values));
}

std::string text(const char* format, double value) {
  char out[64];
  std::snprintf(out, sizeof out, format, value);
  return out;
}

std::string pair(const char* format, bool both, double ours, double baseline) {
  return (both ? text(format, ours) : "-") + " / " + text(format, baseline);
}

struct file_closer {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

}  // namespace

traffic::traffic(uv_loop_t* loop) : loop_(loop), watchdog_(new uv_timer_t) {
  uv_timer_init(loop_, watchdog_);
  watchdog_->data = this;
}

traffic::~traffic() {
  uv_close(reinterpret_cast<uv_handle_t*>(watchdog_),
           [](uv_handle_t* handle) { delete reinterpret_cast<uv_timer_t*>(handle); });
}

traffic::reading traffic::read_clocks() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return {clock::now(), us(usage.ru_utime) + us(usage.ru_stime)};
}

void traffic::begin(std::size_t lanes, round_limit limit) {
  uv_update_time(loop_);
  const auto bark = [](uv_timer_t* timer) {
    auto* self = static_cast<traffic*>(timer->data);
    if (self->failure_.empty()) self->failure_ = "operations did not complete in time";
    uv_stop(self->loop_);
  };
  uv_timer_start(watchdog_, bark, watchdog_ms, 0);
  open_ = lanes;
  completed_ = 0;
  asked_ = 0;
  limit_ = limit.operations;
  over_ = false;
  allocations_before_ = process_allocations.count();
  before_ = read_clocks();
  deadline_ = before_.at + limit.time;
}

std::optional<sample> traffic::finish() {
  uv_run(loop_, UV_RUN_DEFAULT);
  const reading after = read_clocks();
  const std::uint64_t allocations = process_allocations.count() - allocations_before_;
  uv_timer_stop(watchdog_);
  if (!failure_.empty()) return std::nullopt;
  const auto operations = static_cast<double>(completed_);
  const std::chrono::duration<double> taken = after.at - before_.at;
  return sample{.operations_per_s = operations / taken.count(),
                .cpu_us_per_operation = (after.cpu_us - before_.cpu_us) / operations,
                .allocations_per_operation = static_cast<double>(allocations) / operations};
}

void traffic::fail(std::string_view why) {
  if (failure_.empty()) failure_ = why;
  over_ = true;
  end_lane();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double series::operations_per_s() const { return median_of(rounds, &sample::operations_per_s); }
double series::cpu_us_per_operation() const { return median_of(rounds, &sample::cpu_us_per_operation); }
double series::allocations_per_operation() const { return median_of(rounds, &sample::allocations_per_operation); }

double series::spread() const {
  if (rounds.empty()) return 0;
  std::vector<double> speeds;
  speeds.reserve(rounds.size());
  for (const sample& round : rounds) speeds.push_back(round.operations_per_s);
  std::sort(speeds.begin(), speeds.end());
  return (speeds[speeds.size() * 3 / 4] - speeds[speeds.size() / 4]) / operations_per_s();
}

double row::ratio() const {
  std::vector<double> ratios;
  for (std::size_t at = 0; at < std::min(ours.rounds.size(), baseline.rounds.size()); ++at)
    ratios.push_back(ours.rounds[at].operations_per_s / baseline.rounds[at].operations_per_s);
  return median(std::move(ratios));
}

void print_table(const std::vector<row>& rows) {
  std::printf("%-15s %12s %14s %7s %17s %10s %15s\n", "", "ours op/s", "baseline op/s", "ratio", "spread", "allocs/op",
              "client us/op");
  for (const row& line : rows) {
    const bool both = !line.ours.rounds.empty();
    const bool counted = both && testing::allocation_counter::available();
    std::printf("%-15s %12s %14.0f %7s %17s %10s %15s\n", line.name.c_str(),
                both ? text("%.0f", line.ours.operations_per_s()).c_str() : "-", line.baseline.operations_per_s(),
                both ? text("%.2f", line.ratio()).c_str() : "-",
                pair("%.1f %%", both, 100 * line.ours.spread(), 100 * line.baseline.spread()).c_str(),
                counted ? text("%.3f", line.ours.allocations_per_operation()).c_str() : "-",
                pair("%.2f", both, line.ours.cpu_us_per_operation(), line.baseline.cpu_us_per_operation()).c_str());
  }
  std::printf(
      "medians, that of the ratio over pairs of rounds; spread of the middle half, client us/op: ours / baseline\n");
}

bool write_json(const std::string& path, const std::vector<row>& rows) {
  std::unique_ptr<std::FILE, file_closer> file{std::fopen(path.c_str(), "w")};
  if (file == nullptr) return false;
  const bool counted = testing::allocation_counter::available();
  std::fprintf(file.get(), "[");
  const char* separator = "\n";
  for (const row& line : rows) {
    const std::string allocations = counted ? text("%.4f", line.ours.allocations_per_operation()) : "null";
    std::fprintf(file.get(),
                 "%s  {\"name\": \"%s\", \"value\": %.0f, \"unit\": \"op/s\", \"baseline\": %.0f, \"ratio\": %.3f, "
                 "\"allocs_per_op\": %s}",
                 separator, line.name.c_str(), line.ours.operations_per_s(), line.baseline.operations_per_s(),
                 line.ratio(), allocations.c_str());
    separator = ",\n";
  }
  std::fprintf(file.get(), "\n]\n");
  return std::ferror(file.get()) == 0 && std::fclose(file.release()) == 0;
}

}  // namespace syncguard::bench

#include "turn_meter.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>

namespace syncguard::bench {

namespace {

std::uint64_t thread_cpu_ns() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

void duration_histogram::add(std::uint64_t ns) noexcept {
  ++counts_[std::min<std::uint64_t>(ns / 1000, buckets - 1)];
  ++size_;
  max_ns_ = std::max(max_ns_, ns);
}

void duration_histogram::clear() noexcept {
  std::fill(counts_.begin(), counts_.end(), 0);
  size_ = max_ns_ = 0;
}

double duration_histogram::percentile_us(double share) const noexcept {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(size_)));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket + 1 < buckets; ++bucket) {
    seen += counts_[bucket];
    if (seen >= wanted) return static_cast<double>(bucket + 1);
  }
  return max_us();
}

turn_meter::turn_meter(uv_loop_t* loop) : loop_(loop), handle_(new uv_prepare_t) {
  uv_prepare_init(loop_, handle_);
  handle_->data = this;
  uv_prepare_start(handle_, [](uv_prepare_t* handle) { static_cast<turn_meter*>(handle->data)->turn_ended(); });
  uv_unref(reinterpret_cast<uv_handle_t*>(handle_));
}

turn_meter::~turn_meter() {
  uv_close(reinterpret_cast<uv_handle_t*>(handle_),
           [](uv_handle_t* handle) { delete reinterpret_cast<uv_prepare_t*>(handle); });
}

void turn_meter::clear() noexcept {
  wall_.clear();
  cpu_.clear();
  skip();
}

void turn_meter::turn_ended() noexcept {
  const reading now{uv_hrtime(), uv_metrics_idle_time(loop_), thread_cpu_ns()};
  if (anchored_) {
    const std::uint64_t passed_ns = now.wall_ns - last_.wall_ns;
    wall_.add(passed_ns - std::min(passed_ns, now.idle_ns - last_.idle_ns));
    cpu_.add(now.cpu_ns - last_.cpu_ns);
  }
  last_ = now;
  anchored_ = true;
}

}  // namespace syncguard::bench

#include <syncguard/loop.hpp>

#include <utility>

#include "redis/event_loop.hpp"

namespace syncguard {

loop::loop(std::unique_ptr<redis::event_loop> made) noexcept : made_(std::move(made)) {}
loop::loop(loop&&) noexcept = default;
loop& loop::operator=(loop&&) noexcept = default;
loop::~loop() = default;

std::unique_ptr<redis::event_loop> loop::take() noexcept { return std::move(made_); }

}  // namespace syncguard

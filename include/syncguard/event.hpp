#pragma once

#include <event2/event.h>

#include <syncguard/export.hpp>
#include <syncguard/loop.hpp>

namespace syncguard {

// A libevent base for a client to live in:
//
//   syncguard::client client{syncguard::event(base), {.url = "redis://127.0.0.1:6379"}};
//
// Thread: the base's.
// Allocates: once.
SYNCGUARD_API loop event(event_base* base);

}  // namespace syncguard

#pragma once

#include <uv.h>

#include <syncguard/export.hpp>
#include <syncguard/loop.hpp>

namespace syncguard {

// A libuv loop for a client to live in:
//
//   syncguard::client client{syncguard::uv(loop), {.url = "redis://127.0.0.1:6379"}};
//
// Thread: the loop's.
// Allocates: once.
SYNCGUARD_API loop uv(uv_loop_t* loop);

}  // namespace syncguard

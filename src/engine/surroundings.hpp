#pragma once

#include <syncguard/lock.hpp>
#include <syncguard/lock_id.hpp>

#include "engine/operation.hpp"

namespace syncguard::engine {

struct held_lock;

// What the keeper and the waiting room need from the client around them. All of it is quiet: no callback runs inside.
class surroundings {
 public:
  virtual lock_id fresh_id() = 0;

  // The connection that is told of changes is wanted from here on.
  virtual void want_watching() = 0;

  // Asks for end_turn() before the loop goes to sleep.
  virtual void want_turn_end() = 0;

  // The object that a user gets.
  virtual lock wrap(held_lock& held) = 0;

  // Who is told how the release of a lock ended that was given back without a callback.
  virtual completion release_observer() = 0;

 protected:
  ~surroundings() = default;
};

}  // namespace syncguard::engine

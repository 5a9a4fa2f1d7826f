#pragma once

// A part of a test that runs in a child process.

#include <sys/wait.h>
#include <unistd.h>

#include "support/cmocka.hpp"

namespace syncguard::testing {

// Returns the verdict of `body`, which is the child's exit status; -1 where it did not live to tell.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) print_error("the child was ended by signal %d\n", WTERMSIG(status));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace syncguard::testing

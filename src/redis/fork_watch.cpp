#include "redis/fork_watch.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>

namespace syncguard::redis {

namespace {

// Clients of several loops may live in several threads; the list is one.
std::mutex list_mutex;
watched_socket* first = nullptr;
std::uint32_t forks = 0;

}  // namespace

// Runs in the child, where only async-signal-safe functions may be called.
void replace_all_sockets() noexcept {
  ++forks;
  // A socket, because loops that are taken over by the child watch it, and epoll refuses /dev/null.
  const int nothing = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  for (watched_socket* each = first; each != nullptr; each = each->next_) {
    if (each->descriptor_ < 0) continue;  // replaced by an earlier fork; the number may be anybody's by now
    if (nothing < 0 || dup3(nothing, each->descriptor_, O_CLOEXEC) < 0) close(each->descriptor_);
    each->descriptor_ = -1;
  }
  if (nothing >= 0) close(nothing);
  list_mutex.unlock();
}

namespace {

void watch_forks() noexcept {
  static const int registered =
      pthread_atfork([] { list_mutex.lock(); }, [] { list_mutex.unlock(); }, [] { replace_all_sockets(); });
  static_cast<void>(registered);
}

}  // namespace

watched_socket::watched_socket(int descriptor) noexcept : descriptor_(descriptor) {
  watch_forks();
  const std::lock_guard lock{list_mutex};
  next_ = first;
  if (first != nullptr) first->previous_ = this;
  first = this;
}

watched_socket::~watched_socket() {
  const std::lock_guard lock{list_mutex};
  (previous_ != nullptr ? previous_->next_ : first) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

std::uint32_t fork_count() noexcept {
  watch_forks();
  return forks;
}

}  // namespace syncguard::redis

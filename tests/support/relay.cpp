#include "support/relay.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

namespace syncguard::testing {

namespace {

constexpr int backlog = 16;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

int listen_at(const std::string& path) {
  unlink(path.c_str());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      listen(listener, backlog) == 0)
    return listener;
  close(listener);
  return -1;
}

int connect_to(const std::string& path) {
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  if (connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return made;
  close(made);
  return -1;
}

bool send_all(int to, const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t sent = send(to, bytes, count, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

// The two sides of a connection stand next to each other in `ends`, behind the listener.
[[noreturn]] void carry(int listener, const std::string& leads_to) {
  std::vector<pollfd> ends{{listener, POLLIN, 0}};
  std::array<char, 65'536> bytes;
  while (true) {
    poll(ends.data(), ends.size(), -1);
    for (std::size_t index = 1; index < ends.size(); ++index) {
      if (ends[index].fd < 0 || ends[index].revents == 0) continue;
      const std::size_t other = (index - 1) % 2 == 0 ? index + 1 : index - 1;
      const ssize_t got = recv(ends[index].fd, bytes.data(), bytes.size(), 0);
      if (got > 0 && send_all(ends[other].fd, bytes.data(), static_cast<std::size_t>(got))) continue;
      for (const std::size_t side : {index, other}) {
        close(ends[side].fd);
        ends[side].fd = -1;
        ends[side].revents = 0;
      }
    }
    if ((ends[0].revents & POLLIN) == 0) continue;
    const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    const int server = connect_to(leads_to);
    if (client >= 0 && server >= 0) {
      ends.push_back({client, POLLIN, 0});
      ends.push_back({server, POLLIN, 0});
    } else {
      close(client);
      close(server);
    }
  }
}

}  // namespace

relay::relay(std::string listens_at, std::string leads_to)
    : listens_at_(std::move(listens_at)), leads_to_(std::move(leads_to)) {}

relay::~relay() { end(); }

bool relay::start() {
  const int listener = listen_at(listens_at_);
  if (listener < 0) {
    std::fprintf(stderr, "no relay can listen at %s\n", listens_at_.c_str());
    return false;
  }
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    carry(listener, leads_to_);
  }
  close(listener);
  return pid_ > 0;
}

void relay::pause() {
  if (pid_ <= 0) return;
  kill(pid_, SIGSTOP);
  int status = 0;
  waitpid(pid_, &status, WUNTRACED);
}

void relay::resume() {
  if (pid_ > 0) kill(pid_, SIGCONT);
}

void relay::end() {
  if (pid_ <= 0) return;
  unlink(listens_at_.c_str());
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace syncguard::testing

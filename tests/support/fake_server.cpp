#include "support/fake_server.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace syncguard::testing {

namespace {

// The number in a line like `$12`, and `at` moved behind the line; negative where the line is not complete.
long take_number(const std::string& text, std::size_t& at) {
  const std::size_t end = text.find("\r\n", at);
  if (end == std::string::npos) return -1;
  const long number = std::strtol(text.c_str() + at + 1, nullptr, 10);
  at = end + 2;
  return number;
}

}  // namespace

fake_server::fake_server(std::string path, answers answer)
    : path_(std::move(path)),
      answer_(std::move(answer)),
      listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
  unlink(path_.c_str());
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener_, 8) != 0)
    std::abort();
}

fake_server::~fake_server() {
  if (peer_ >= 0) close(peer_);
  close(listener_);
  unlink(path_.c_str());
}

void fake_server::serve() {
  const int next = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (next >= 0) {
    if (peer_ >= 0) close(peer_);
    peer_ = next;
    heard_.clear();
    waiting_ = false;
  }
  char buffer[4096];
  for (ssize_t size = 0; peer_ >= 0 && (size = read(peer_, buffer, sizeof buffer)) > 0;)
    heard_.append(buffer, static_cast<std::size_t>(size));
  for (command asked; !waiting_ && take_command(asked);) {
    const std::string answer = answer_(asked);
    say(answer);
    waiting_ = answer.empty();
  }
}

bool fake_server::take_command(command& out) {
  out.clear();
  std::size_t at = 0;
  const long words = take_number(heard_, at);
  for (long word = 0; word < words; ++word) {
    const long size = take_number(heard_, at);
    if (size < 0 || heard_.size() < at + static_cast<std::size_t>(size) + 2) return false;
    out.push_back(heard_.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size) + 2;
  }
  if (words < 0) return false;
  heard_.erase(0, at);
  return true;
}

void fake_server::say(std::string_view text) {
  waiting_ = false;
  while (peer_ >= 0 && !text.empty()) {
    const ssize_t sent = send(peer_, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0) return;  // gone, or its buffer is full: tests say little
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

}  // namespace syncguard::testing

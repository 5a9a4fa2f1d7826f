#include "faults/cutting_proxy.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

namespace syncguard::testing {

namespace {

constexpr int backlog = 128;

// What epoll tells apart: connections have a number, the low two bits say which end; gates and the wake-up are `other`.
enum tag : std::uint64_t { client_end = 0, server_end = 1, other = 2 };

std::uint64_t name_of(std::uint64_t id, tag which) { return id << 2 | which; }

int listen_anywhere(int& port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* where = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, where, length) != 0 || listen(listener, backlog) != 0 ||
      getsockname(listener, where, &length) != 0) {
    std::fprintf(stderr, "the proxy cannot listen: %s\n", std::strerror(errno));
    close(listener);
    return -1;
  }
  port = ntohs(address.sin_port);
  return listener;
}

int connect_to(const std::string& path) {
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
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

}  // namespace

void gate::cut_next(const cut& where) {
  const std::scoped_lock held{owner_.mutex_};
  wanted_.push_back(where);
}

bool gate::cut_present(bool watched, const cut& where) {
  const std::scoped_lock held{owner_.mutex_};
  cutting_proxy::connection* on = owner_.present(*this, watched);
  if (on == nullptr) return false;
  on->planned = where;
  on->has_cut = true;
  on->passed = {};
  return true;
}

bool gate::count_present(bool watched) {
  const std::scoped_lock held{owner_.mutex_};
  cutting_proxy::connection* on = owner_.present(*this, watched);
  if (on == nullptr) return false;
  on->passed = {};
  return true;
}

traffic gate::counted(bool watched) const {
  const std::scoped_lock held{owner_.mutex_};
  const cutting_proxy::connection* on = owner_.present(*this, watched);
  return on != nullptr ? on->passed : traffic{};
}

std::vector<cut> gate::take_made() {
  const std::scoped_lock held{owner_.mutex_};
  wanted_.clear();
  for (auto& [id, each] : owner_.connections_)
    if (each.through == this) each.has_cut = false;
  return std::exchange(made_, {});
}

void gate::lead_to(const std::string& socket_path) {
  const std::scoped_lock held{owner_.mutex_};
  leads_to_ = socket_path;
  std::vector<std::uint64_t> mine;
  for (const auto& [id, each] : owner_.connections_)
    if (each.through == this) mine.push_back(id);
  for (const std::uint64_t id : mine) owner_.end(id, owner_.connections_.at(id), true);
}

cutting_proxy::cutting_proxy(std::string leads_to)
    : leads_to_(std::move(leads_to)), epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC)) {
  watch(wake_, EPOLLIN, name_of(0, other), false);
  thread_ = std::thread{[this] { run(); }};
}

cutting_proxy::~cutting_proxy() {
  {
    const std::scoped_lock held{mutex_};
    stopping_ = true;
  }
  const std::uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof one));
  thread_.join();
  while (!connections_.empty()) end(connections_.begin()->first, connections_.begin()->second, true);
  for (const auto& each : gates_) close(each->listener_);
  close(wake_);
  close(epoll_);
}

gate* cutting_proxy::make_gate() {
  const std::scoped_lock held{mutex_};
  int port = 0;
  const int listener = listen_anywhere(port);
  if (listener < 0) return nullptr;
  gates_.push_back(std::unique_ptr<gate>{new gate{*this, port, listener, leads_to_}});
  watch(listener, EPOLLIN, name_of(gates_.size(), other), false);
  return gates_.back().get();
}

void cutting_proxy::watch(int descriptor, std::uint32_t events, std::uint64_t name, bool known) const {
  epoll_event wanted{};
  wanted.events = events;
  wanted.data.u64 = name;
  epoll_ctl(epoll_, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, descriptor, &wanted);
}

void cutting_proxy::run() {
  std::array<epoll_event, 64> ready;
  while (true) {
    const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), -1);
    const std::scoped_lock held{mutex_};
    if (stopping_) return;
    for (int at = 0; at < count; ++at) {
      const std::uint64_t name = ready[static_cast<std::size_t>(at)].data.u64;
      const std::uint64_t id = name >> 2;
      if ((name & 3) == other) {
        accept_at(*gates_[id - 1]);
        continue;
      }
      // An end may have gone with the event before.
      const auto found = connections_.find(id);
      if (found != connections_.end()) pass(id, found->second, (name & 3) == client_end);
    }
  }
}

void cutting_proxy::accept_at(gate& where) {
  const int client = accept4(where.listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  const int server = connect_to(where.leads_to_);
  if (server < 0) {
    close(client);
    return;
  }
  const int yes = 1;
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  const std::uint64_t id = ++last_id_;
  connection& made = connections_[id];
  made.through = &where;
  made.client = client;
  made.server = server;
  if (!where.wanted_.empty()) {
    made.planned = where.wanted_.front();
    made.has_cut = true;
    where.wanted_.pop_front();
  }
  watch(client, EPOLLIN | EPOLLRDHUP, name_of(id, client_end), false);
  watch(server, EPOLLIN | EPOLLRDHUP, name_of(id, server_end), false);
}

void cutting_proxy::pass(std::uint64_t id, connection& on, bool from_client) {
  if (on.stalled) return end(id, on, false);  // one side has given up
  std::array<char, 65'536> bytes;
  const direction way = from_client ? direction::request : direction::reply;
  std::size_t& passed = from_client ? on.passed.request : on.passed.reply;
  // Replies that were under way when counting began belong to requests before that.
  const bool counts = from_client || on.passed.request > 0;
  const bool cuts_here = on.has_cut && on.planned.where == way && counts;
  const std::size_t room = cuts_here ? std::min(bytes.size(), on.planned.offset - passed) : bytes.size();
  if (room == 0) return make_cut(id, on);
  const ssize_t got = recv(from_client ? on.client : on.server, bytes.data(), room, 0);
  if (got <= 0) return end(id, on, false);
  const auto count = static_cast<std::size_t>(got);
  if (from_client &&
      std::string_view{bytes.data(), std::min(count, std::size_t{16})}.find("HELLO") != std::string::npos)
    on.watched = true;
  if (!send_all(from_client ? on.server : on.client, bytes.data(), count)) return end(id, on, false);
  if (counts) passed += count;
  if (cuts_here && passed == on.planned.offset) make_cut(id, on);
}

void cutting_proxy::make_cut(std::uint64_t id, connection& on) {
  on.through->made_.push_back(on.planned);
  on.has_cut = false;
  if (on.planned.how != fate::stall) return end(id, on, on.planned.how == fate::reset);
  on.stalled = true;
  watch(on.client, EPOLLRDHUP, name_of(id, client_end), true);
  watch(on.server, EPOLLRDHUP, name_of(id, server_end), true);
}

void cutting_proxy::end(std::uint64_t id, connection& on, bool reset) {
  if (reset) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(on.client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  } else {
    // A close with unread bytes would be a reset.
    shutdown(on.client, SHUT_WR);
    std::array<char, 65'536> bytes;
    while (recv(on.client, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }
  close(on.client);
  close(on.server);
  connections_.erase(id);
}

// The one that came last.
cutting_proxy::connection* cutting_proxy::present(const gate& of, bool watched) {
  connection* last = nullptr;
  std::uint64_t last_seen = 0;
  for (auto& [id, each] : connections_) {
    if (each.through != &of || each.watched != watched || each.stalled || id < last_seen) continue;
    last = &each;
    last_seen = id;
  }
  return last;
}

}  // namespace syncguard::testing

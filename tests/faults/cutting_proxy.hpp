#pragma once

// A proxy between clients and a redis-server, in a thread of the test's own, that ends a connection at any byte that a
// test names: behind the first `offset` bytes of the requests or of the replies.
//
// Each gate has a port of its own, so a test knows whose connection it cuts.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace syncguard::testing {

enum class direction : std::uint8_t { request, reply };

enum class fate : std::uint8_t {
  reset,  // RST, as from a machine that has forgotten the connection
  close,  // FIN
  stall,  // nothing moves any more, in either direction, until the client gives up
};

struct cut {
  direction where = direction::request;
  std::size_t offset = 0;  // of 0: when the first byte comes
  fate how = fate::reset;
};

struct traffic {
  std::size_t request = 0;
  std::size_t reply = 0;
};

class cutting_proxy;

// One way through the proxy.
//
// Lifetime: the proxy's.
// Thread: any.
class gate {
 public:
  int port() const noexcept { return port_; }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }

  // Cuts the connection that comes next; called again, the one after that.
  void cut_next(const cut& where);

  // Cuts the present connection; what has passed so far does not count. `watched`: the one that is told of changes.
  // False: there is none.
  bool cut_present(bool watched, const cut& where);

  // Counts from here on what passes.
  bool count_present(bool watched);
  traffic counted(bool watched) const;

  // The cuts that were made since the last call; those that were not are forgotten.
  std::vector<cut> take_made();

  // New connections go there, and those that are there are reset.
  void lead_to(const std::string& socket_path);

 private:
  friend class cutting_proxy;
  gate(cutting_proxy& owner, int port, int listener, std::string leads_to)
      : owner_(owner), port_(port), listener_(listener), leads_to_(std::move(leads_to)) {}

  cutting_proxy& owner_;
  int port_;
  int listener_;
  std::string leads_to_;
  std::deque<cut> wanted_;
  std::vector<cut> made_;
};

// Errors: make_gate() returns null, and standard error says why.
class cutting_proxy {
 public:
  // Leads to the unix socket of a redis-server.
  explicit cutting_proxy(std::string leads_to);
  ~cutting_proxy();
  cutting_proxy(const cutting_proxy&) = delete;
  cutting_proxy& operator=(const cutting_proxy&) = delete;

  gate* make_gate();

 private:
  friend class gate;

  struct connection {
    gate* through = nullptr;
    int client = -1;
    int server = -1;
    bool watched = false;
    bool stalled = false;
    bool has_cut = false;
    cut planned{};
    traffic passed{};
  };

  void run();
  void accept_at(gate& where);
  void pass(std::uint64_t id, connection& on, bool from_client);
  void make_cut(std::uint64_t id, connection& on);
  void end(std::uint64_t id, connection& on, bool reset);
  void watch(int descriptor, std::uint32_t events, std::uint64_t name, bool known) const;
  connection* present(const gate& of, bool watched);

  std::string leads_to_;
  int epoll_;
  int wake_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<gate>> gates_;
  std::unordered_map<std::uint64_t, connection> connections_;
  std::uint64_t last_id_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace syncguard::testing

#pragma once

// The little of libuv that the example programs need, so that they can be about locks: timers, the signals that end a
// program, and lines of text over TCP within this machine.
//
// Lifetime, of everything here that has a close(): call it, and let the loop turn once, before its end.

#include <uv.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <utility>

namespace example {

inline int to_port(const char* text) { return static_cast<int>(std::strtol(text, nullptr, 10)); }

template <class Handle>
void close_handle(Handle& handle, uv_close_cb then = nullptr) {
  auto* base = reinterpret_cast<uv_handle_t*>(&handle);
  if (uv_is_closing(base) == 0) uv_close(base, then);
}

class timer {
 public:
  timer(uv_loop_t* loop, std::function<void()> on_due) : on_due_(std::move(on_due)) {
    uv_timer_init(loop, &handle_);
    handle_.data = this;
  }

  void start(std::chrono::milliseconds first, std::chrono::milliseconds repeat = {}) {
    const auto due = [](uv_timer_t* handle) { static_cast<timer*>(handle->data)->on_due_(); };
    uv_timer_start(&handle_, due, static_cast<std::uint64_t>(first.count()),
                   static_cast<std::uint64_t>(repeat.count()));
  }

  void close() { close_handle(handle_); }

 private:
  uv_timer_t handle_{};
  std::function<void()> on_due_;
};

// SIGTERM and SIGINT.
class end_signals {
 public:
  end_signals(uv_loop_t* loop, std::function<void()> on_signal) : on_signal_(std::move(on_signal)) {
    const auto told = [](uv_signal_t* handle, int) { static_cast<end_signals*>(handle->data)->on_signal_(); };
    for (std::size_t index = 0; index < 2; ++index) {
      uv_signal_init(loop, &handles_[index]);
      handles_[index].data = this;
      uv_signal_start(&handles_[index], told, index == 0 ? SIGTERM : SIGINT);
    }
  }

  void close() {
    for (uv_signal_t& handle : handles_) close_handle(handle);
  }

 private:
  std::array<uv_signal_t, 2> handles_{};
  std::function<void()> on_signal_;
};

// One TCP connection.
//
// Ownership: its own; made with new, it deletes itself in the turn after it was closed, by either side, and tells
//   on_closed before.
class connection {
 public:
  std::function<void(connection& from, const std::string& line)> on_line{};
  std::function<void(connection& gone)> on_closed{};

  explicit connection(uv_loop_t* loop) {
    uv_tcp_init(loop, &socket_);
    socket_.data = this;
  }

  // Lines may be sent at once: they wait for the connection.
  void connect(int port) {
    sockaddr_in address{};
    uv_ip4_addr("127.0.0.1", port, &address);
    dial_.data = this;
    const auto connected = [](uv_connect_t* dial, int status) {
      if (status < 0) return static_cast<connection*>(dial->data)->close();
      static_cast<connection*>(dial->data)->read();
    };
    if (uv_tcp_connect(&dial_, &socket_, reinterpret_cast<sockaddr*>(&address), connected) < 0) close();
  }

  void accept_from(uv_tcp_t& listener) {
    if (uv_accept(reinterpret_cast<uv_stream_t*>(&listener), stream()) < 0) return close();
    read();
  }

  void send(std::string line) {
    if (uv_stream_get_write_queue_size(stream()) > unsent_max_bytes) return close();
    auto* letter = new outgoing{.request = {}, .text = std::move(line) + '\n'};
    letter->request.data = letter;
    const uv_buf_t buffer = uv_buf_init(letter->text.data(), static_cast<unsigned>(letter->text.size()));
    const auto sent = [](uv_write_t* request, int) { delete static_cast<outgoing*>(request->data); };
    if (uv_write(&letter->request, stream(), &buffer, 1, sent) < 0) delete letter;
  }

  void close() {
    close_handle(socket_, [](uv_handle_t* handle) {
      auto* self = static_cast<connection*>(handle->data);
      if (self->on_closed) self->on_closed(*self);
      delete self;
    });
  }

 private:
  static constexpr std::size_t line_max_bytes = 4096;
  static constexpr std::size_t unsent_max_bytes = 1 << 20;

  struct outgoing {
    uv_write_t request;
    std::string text;
  };

  bool closing() { return uv_is_closing(reinterpret_cast<uv_handle_t*>(&socket_)) != 0; }
  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&socket_); }

  void read() {
    const auto make_room = [](uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
      auto* self = static_cast<connection*>(handle->data);
      *buffer = uv_buf_init(self->room_, sizeof self->room_);
    };
    const auto arrived = [](uv_stream_t* stream, ssize_t bytes, const uv_buf_t* buffer) {
      auto* self = static_cast<connection*>(stream->data);
      if (bytes < 0) return self->close();
      self->unread_.append(buffer->base, static_cast<std::size_t>(bytes));
      self->hand_out_lines();
    };
    if (uv_read_start(stream(), make_room, arrived) < 0) close();
  }

  void hand_out_lines() {
    for (std::size_t end = 0; (end = unread_.find('\n')) != std::string::npos && !closing();) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      if (on_line) on_line(*this, line);
    }
    if (unread_.size() > line_max_bytes) close();
  }

  uv_tcp_t socket_{};
  uv_connect_t dial_{};
  std::string unread_;
  char room_[4096]{};
};

// Accepts TCP connections.
class listener {
 public:
  std::function<void(connection& caller)> on_connect{};
  std::function<void(connection& from, const std::string& line)> on_line{};

  // Port 0: any that is free.
  listener(uv_loop_t* loop, int port) {
    sockaddr_in address{};
    uv_ip4_addr("127.0.0.1", port, &address);
    uv_tcp_init(loop, &socket_);
    socket_.data = this;
    uv_tcp_bind(&socket_, reinterpret_cast<sockaddr*>(&address), 0);
    const auto called = [](uv_stream_t* stream, int status) {
      if (status == 0) static_cast<listener*>(stream->data)->accept();
    };
    failed_ = uv_listen(reinterpret_cast<uv_stream_t*>(&socket_), 16, called);
  }

  // Negative: what libuv says is wrong.
  int port() const {
    sockaddr_in address{};
    int bytes = sizeof address;
    if (failed_ < 0) return failed_;
    uv_tcp_getsockname(&socket_, reinterpret_cast<sockaddr*>(&address), &bytes);
    return ntohs(address.sin_port);
  }

  void close() {
    close_handle(socket_);
    for (connection* caller : callers_) caller->close();
  }

 private:
  void accept() {
    auto* caller = new connection{socket_.loop};
    callers_.insert(caller);
    caller->on_line = on_line;
    caller->on_closed = [this](connection& gone) { callers_.erase(&gone); };
    caller->accept_from(socket_);
    if (on_connect) on_connect(*caller);
  }

  uv_tcp_t socket_{};
  int failed_ = 0;
  std::set<connection*> callers_;
};

}  // namespace example

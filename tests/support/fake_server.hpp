#pragma once

// A server that says whatever a test wants, in the test's own thread: serve() does what can be done without waiting.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard::testing {

// Ownership: the socket's file, which is removed in the end.
class fake_server {
 public:
  using command = std::vector<std::string>;

  // What to say to a command; nothing: the answer is left to say(), and what comes behind waits for that.
  using answers = std::function<std::string(const command&)>;

  fake_server(std::string path, answers answer);
  ~fake_server();
  fake_server(const fake_server&) = delete;
  fake_server& operator=(const fake_server&) = delete;

  // Takes the connection that came last, and answers the commands that have arrived on it.
  void serve();

  // Says something, asked for or not.
  void say(std::string_view text);

  const std::string& path() const noexcept { return path_; }

 private:
  bool take_command(command& out);

  std::string path_;
  answers answer_;
  int listener_;
  int peer_ = -1;
  std::string heard_;
  bool waiting_ = false;  // for say()
};

}  // namespace syncguard::testing

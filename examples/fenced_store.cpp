// A scoreboard that honours fences: why a lock hands out a number.
//
// A lock alone cannot stop a holder that was paused, swapped out or cut off, lost its lock meanwhile, and does not know
// it yet: the write that it was about to make still comes. But each holder of a lock gets a higher fence than the one
// before, so a store that remembers the highest fence of each match can refuse what comes from a former holder. It
// needs neither a clock nor Redis for that, only this comparison.
//
//   fenced_store [PORT]         serves lines of text over TCP; says at which port
//   fenced_store --self-check   shows the rule without a network
//
//   WRITE match fence text      ok match fence, or stale match HIGHEST
//   READ match fence            value match fence text, or stale match HIGHEST
//   SHOW                        match fence text, for each match; then end

#include <uv.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <syncguard/fence.hpp>

#include "small_uv.hpp"

namespace {

class fenced_record {
 public:
  // Whether somebody with this fence may still act. Whoever may is the latest from here on: the mere read of a new
  // holder shuts out the former one, so nothing can change between what the new one reads and what it writes.
  bool admit(syncguard::fence token) {
    if (highest_ && token < *highest_) return false;
    highest_ = token;
    return true;
  }

  bool write(syncguard::fence token, std::string text) {
    if (!admit(token)) return false;
    text_ = std::move(text);
    return true;
  }

  const std::string& text() const { return text_; }
  std::string highest() const { return highest_ ? std::string{highest_->to_text().view()} : "none"; }

 private:
  std::optional<syncguard::fence> highest_;
  std::string text_;
};

class scoreboard {
 public:
  scoreboard(uv_loop_t* loop, int port) : listener_(loop, port), signals_(loop, [this] { close(); }) {
    listener_.on_line = [this](example::connection& from, const std::string& line) { answer(from, line); };
  }

  int port() const { return listener_.port(); }

  void close() {
    listener_.close();
    signals_.close();
  }

 private:
  void answer(example::connection& from, const std::string& line) {
    std::istringstream words{line};
    std::string verb;
    std::string match;
    std::string written;
    std::string text;
    words >> verb >> match >> written;
    std::getline(words >> std::ws, text);

    if (verb == "SHOW") return show(from);
    const auto token = syncguard::fence::parse(written);
    if ((verb != "WRITE" && verb != "READ") || !token) return from.send("error: what does that mean? " + line);

    fenced_record& record = records_[match];
    const bool taken = verb == "WRITE" ? record.write(*token, text) : record.admit(*token);
    if (!taken) {
      std::printf("refused %s \"%s\" for %s with fence %llu: fence %s was here\n", verb.c_str(), text.c_str(),
                  match.c_str(), static_cast<unsigned long long>(token->number()), record.highest().c_str());
      return from.send("stale " + match + ' ' + record.highest());
    }
    if (verb == "WRITE") return from.send("ok " + match + ' ' + written);
    from.send("value " + match + ' ' + written + ' ' + record.text());
  }

  void show(example::connection& to) {
    for (const auto& [match, record] : records_) to.send(match + ' ' + record.highest() + ' ' + record.text());
    to.send("end");
  }

  std::map<std::string, fenced_record> records_;
  example::listener listener_;
  example::end_signals signals_;
};

int self_check() {
  // What two acquisitions of one lock, one after the other, were given.
  const auto first = syncguard::fence::parse("000000000000041");
  const auto second = syncguard::fence::parse("000000000000042");
  if (!first || !second) return 1;

  fenced_record record;
  const bool before = record.write(*first, "score 2:1");
  const bool taken = record.write(*second, "score 3:1");      // the present holder
  const bool late = record.write(*first, "score 2:2, late");  // the former one, awake again
  std::printf("present holder: %s, former holder: %s, stored: %s\n", taken ? "written" : "refused",
              late ? "written" : "refused", record.text().c_str());
  return before && taken && !late && record.text() == "score 3:1" ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::string_view{arguments[1]} == "--self-check") return self_check();
  std::signal(SIGPIPE, SIG_IGN);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);

  uv_loop_t* loop = uv_default_loop();
  scoreboard board{loop, count > 1 ? example::to_port(arguments[1]) : 0};
  const int port = board.port();
  if (port < 0) {
    std::fprintf(stderr, "fenced_store: cannot listen: %s\n", uv_strerror(port));
    board.close();
  } else {
    std::printf("listening on 127.0.0.1:%d\n", port);
  }
  uv_run(loop, UV_RUN_DEFAULT);
  return port < 0 ? 1 : 0;
}

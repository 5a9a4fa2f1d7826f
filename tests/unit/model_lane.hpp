#pragma once

// A way to the model server, and the engine that uses it. What the engine sends, the server takes up and answers only
// when the world says so; answers and notices of changes come in one stream, as by one connection.

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine_fixture.hpp"
#include "model_server.hpp"

namespace syncguard::testing {

class model_lane;

// What a lane needs from the world around it.
class lane_owner {
 public:
  virtual void want_turn() = 0;
  virtual void changed(std::string_view key) = 0;
  virtual void changed_all() = 0;
  virtual void sent(char lane, const batch& what) = 0;
  virtual void polled() = 0;
  virtual void link_lost(const model_lane& lane) = 0;

 protected:
  ~lane_owner() = default;
};

enum class answers : std::uint8_t {
  come,       // by themselves
  by_poll,    // only when somebody asks for them
  never_come  //
};

class model_lane final : public engine::port, public model_server::connection {
 public:
  model_lane(lane_owner& owner, engine::observer& told, model_server& server, bool watch, const engine_options& options)
      : watched(watch),
        engine(std::make_unique<engine::engine>(options, *this, told, server.now_us)),
        owner_(owner),
        server_(server) {
    if (watch) server.connections.push_back(this);
  }
  ~model_lane() = default;
  model_lane(const model_lane&) = delete;
  model_lane& operator=(const model_lane&) = delete;

  void link_up() {
    drop_wanted = false;
    engine->link_up();
  }
  // What was sent and not carried out yet never will be.
  void link_down(const error& cause, bool refused) {
    sent_.clear();
    stream_.clear();
    server_.forget(*this);
    drop_wanted = false;
    engine->link_down(cause, refused, server_.now_us);
    owner_.link_lost(*this);
  }

  // The server does what has been sent and has arrived there. Returns whether there was anything.
  bool carry_out() {
    std::size_t count = 0;
    for (; count < sent_.size() && sent_[count].at_us <= server_.now_us; ++count) {
      batch& next = *sent_[count].which;
      std::unique_ptr<event> made = fresh_event();
      made->which = &next;
      made->missing = scripts_missing && next.kind != travel_class::key_read && scripts_missing();
      for (std::size_t index = 0; index < next.count && !made->missing; ++index)
        made->words.at(index) = server_.carry_out(*next.operations.at(index), *this, watched);
      // Behind the notices that went out meanwhile.
      if (!stream_.empty()) made->at_us = std::max(made->at_us, stream_.back()->at_us);
      stream_.push_back(std::move(made));
    }
    sent_.erase(sent_.begin(), sent_.begin() + static_cast<std::ptrdiff_t>(count));
    return count > 0;
  }

  // The client reads what has arrived. Returns whether there was anything.
  bool deliver() {
    bool any = false;
    while (engine != nullptr && !stream_.empty() && stream_.front()->at_us <= server_.now_us) {
      any = true;
      std::unique_ptr<event> next = std::move(stream_.front());
      stream_.erase(stream_.begin());
      if (next->which != nullptr && next->missing) {
        engine->script_missing(*next->which);
      } else if (next->which != nullptr) {
        reading answer{*next};
        engine->answered(*next->which, answer, server_.now_us);
      } else if (next->all) {
        owner_.changed_all();
      } else {
        owner_.changed(next->key);
      }
      spare_.push_back(std::move(next));
    }
    return any;
  }

  // Passes everything on as far as the settings allow. Returns whether there was anything.
  bool exchange() {
    if (engine == nullptr) return false;
    const bool done = server_reads && carry_out();
    return (arrival == answers::come && deliver()) || done;
  }

  // When something arrives next, here or there.
  std::optional<std::int64_t> next_arrival_us() const {
    std::optional<std::int64_t> next;
    if (!stream_.empty() && arrival == answers::come) next = stream_.front()->at_us;
    if (!sent_.empty() && server_reads) next = std::min(next.value_or(sent_.front().at_us), sent_.front().at_us);
    return next;
  }

  const bool watched;
  std::unique_ptr<engine::engine> engine;
  bool server_reads = true;
  answers arrival = answers::come;
  bool drop_wanted = false;
  std::function<bool()> scripts_missing;   // asked for each batch that needs one
  std::function<std::int64_t()> delay_us;  // of each thing that is sent, either way

 private:
  struct event {
    batch* which = nullptr;  // null: a notice
    std::array<model_server::answer, batch::read_max> words;
    std::string key;
    bool all = false;
    bool missing = false;  // the server does not know the script
    std::int64_t at_us = 0;
  };

  struct request {
    batch* which;
    std::int64_t at_us;
  };

  class reading final : public engine::batch_answer {
   public:
    explicit reading(event& from) : from_(from) {}
    void read(std::size_t index, const operation&, outcome& out) override {
      model_server::answer& word = from_.words.at(index);
      out.what = word.what;
      out.expires_at_ms = word.expires_at_ms;
      out.server_now_ms = word.server_now_ms;
      if (word.fence != 0) out.token = *fence::from_number(static_cast<std::int64_t>(word.fence));
      out.failure = std::move(word.failure);
    }

   private:
    event& from_;
  };

  // model_server::connection
  void changed(std::string_view key) override { stream_.emplace_back(fresh_event())->key = key; }
  void changed_all() override {
    if (engine->up()) stream_.emplace_back(fresh_event())->all = true;
  }

  // engine::port
  void send(batch& what) override {
    const std::int64_t at_us = server_.now_us + (delay_us ? delay_us() : 0);
    sent_.push_back({&what, sent_.empty() ? at_us : std::max(at_us, sent_.back().at_us)});
    owner_.sent(watched ? 'W' : 'P', what);
  }
  void flush() override {}
  void load_scripts() override {}
  void poll() override {
    owner_.polled();
    if (arrival != answers::never_come) deliver();
  }
  void drop(const error&) override { drop_wanted = true; }
  void want_turn_end() override { owner_.want_turn(); }

  // Used over and over: a test counts allocations.
  std::unique_ptr<event> fresh_event() {
    std::unique_ptr<event> made;
    if (spare_.empty()) {
      made = std::make_unique<event>();
    } else {
      made = std::move(spare_.back());
      spare_.pop_back();
    }
    made->which = nullptr;
    made->all = made->missing = false;
    const std::int64_t at_us = server_.now_us + (delay_us ? delay_us() : 0);
    made->at_us = stream_.empty() ? at_us : std::max(at_us, stream_.back()->at_us);
    return made;
  }

  lane_owner& owner_;
  model_server& server_;
  std::vector<request> sent_;
  std::vector<std::unique_ptr<event>> stream_;
  std::vector<std::unique_ptr<event>> spare_;
};

}  // namespace syncguard::testing

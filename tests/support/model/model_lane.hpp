#pragma once

// A way to the model server, and the engine that uses it. What the engine sends, the server takes up and answers only
// when the world says so; answers and notices of changes come in one stream, as by one connection.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "support/model/model_server.hpp"
#include "support/model/names.hpp"

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
  virtual void answered(const model_lane&) {}

  // By the clock of this process.
  virtual std::int64_t now_us() const noexcept = 0;

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
        engine(std::make_unique<engine::engine>(options, *this, told, owner.now_us())),
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
    cut();
    drop_wanted = false;
    engine->link_down(cause, refused, owner_.now_us());
    owner_.link_lost(*this);
  }
  // The same, and the engine does not know yet.
  void cut() {
    sent_.clear();
    stream_.clear();
    server_.forget(*this);
  }

  // The server does what has been sent and has arrived there. Returns whether there was anything.
  bool carry_out() {
    std::size_t count = 0;
    for (; count < sent_.size() && reaches_server_us(sent_[count]) <= server_.now_us; ++count) {
      if (sent_[count].which == nullptr) {
        server_.knows_scripts = true;
      } else {
        carry_out(*sent_[count].which);
      }
    }
    sent_.erase(sent_.begin(), sent_.begin() + static_cast<std::ptrdiff_t>(count));
    return count > 0;
  }

  // Everything that the server has not read yet, as fresh operations that nobody waits for.
  std::vector<std::unique_ptr<operation>> copy_unread() const {
    std::vector<std::unique_ptr<operation>> copies;
    for (const request& each : sent_)
      for (std::size_t index = 0; each.which != nullptr && index < each.which->count; ++index) {
        const operation& item = *each.which->operations.at(index);
        auto& copy = copies.emplace_back(std::make_unique<operation>());
        copy->kind = item.kind;
        copy->id = item.id;
        copy->ttl_ms = item.ttl_ms;
        copy->maybe_applied = item.maybe_applied;
        copy->careful = item.careful;
        copy->key.assign(item.key.view());
      }
    return copies;
  }

  // The client reads what has arrived. Returns whether there was anything.
  bool deliver() {
    bool any = false;
    while (engine != nullptr && !(drop_wanted && drop_ends_it) && !stream_.empty() &&
           stream_.front()->at_us <= server_.now_us) {
      any = true;
      std::unique_ptr<event> next = std::move(stream_.front());
      stream_.erase(stream_.begin());
      if (next->which != nullptr) {
        owner_.answered(*this);
        reading answer{*next};
        if (next->script_missing) {
          engine->script_missing(*next->which);
        } else {
          engine->answered(*next->which, answer, owner_.now_us());
        }
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

  // When something arrives next: there, here, or either.
  std::optional<std::int64_t> next_request_us() const {
    if (sent_.empty() || !server_reads) return std::nullopt;
    return reaches_server_us(sent_.front());
  }
  std::optional<std::int64_t> next_answer_us() const {
    if (stream_.empty() || arrival != answers::come) return std::nullopt;
    return stream_.front()->at_us;
  }
  std::optional<std::int64_t> next_arrival_us() const {
    const auto there = next_request_us();
    const auto here = next_answer_us();
    return there && here ? std::min(there, here) : std::max(there, here);
  }

  const bool watched;
  std::unique_ptr<engine::engine> engine;
  bool server_reads = true;
  answers arrival = answers::come;
  bool drop_wanted = false;
  bool drop_ends_it = false;               // nothing is read from a connection that the engine does not want any more
  std::function<std::int64_t()> delay_us;  // of each thing that is sent, either way

 private:
  struct event {
    batch* which = nullptr;  // null: a notice
    std::vector<model_server::answer> words;
    std::string key;
    bool all = false;
    bool script_missing = false;
    std::int64_t at_us = 0;
  };

  struct request {
    batch* which;  // null: the scripts
    std::int64_t at_us;
  };

  class reading final : public engine::batch_answer {
   public:
    explicit reading(event& from) : from_(from) {}
    void read(std::size_t index, const operation&, outcome& out) override {
      model_server::answer& word = from_.words.at(index);
      out.what = word.what;
      out.cleanable = word.cleanable;
      out.demoted = word.demoted;
      out.expires_at_ms = word.expires_at_ms;
      out.server_now_ms = word.server_now_ms;
      if (word.fence != 0) out.token = *fence::from_number(static_cast<std::int64_t>(word.fence));
      out.failure = std::move(word.failure);
      if (word.what == verdict::found) describe(word, out.record);
    }
    static void describe(const model_server::answer& word, protocol::decoded_record& out) {
      out.form = protocol::record_form::current;
      out.expires_at_ms = word.expires_at_ms;
      out.acquired_at_ms = word.acquired_at_ms;
      out.id = word.owner;
      out.token = *fence::from_number(static_cast<std::int64_t>(word.fence));
      out.key.append(word.key);
    }

   private:
    event& from_;
  };

  // model_server::connection
  void changed(std::string_view key) override { stream_.emplace_back(fresh_event())->key = key; }
  void changed_all() override {
    if (engine != nullptr && engine->up()) stream_.emplace_back(fresh_event())->all = true;
  }

  // engine::port
  void send(batch& what) override {
    put_on_the_way(&what);
    owner_.sent(watched ? 'W' : 'P', what);
  }
  void flush() override {}
  void load_scripts() override { put_on_the_way(nullptr); }
  void poll() override {
    owner_.polled();
    if (arrival != answers::never_come) deliver();
  }
  void drop(const error&) override {
    drop_wanted = true;
    owner_.want_turn();
  }
  void want_turn_end() override { owner_.want_turn(); }

  void put_on_the_way(batch* what) {
    const std::int64_t at_us = server_.now_us + (delay_us ? delay_us() : 0);
    sent_.push_back({what, sent_.empty() ? at_us : std::max(at_us, sent_.back().at_us)});
  }
  std::int64_t reaches_server_us(const request& what) const { return std::max(what.at_us, server_.paused_until_us); }

  void carry_out(batch& next) {
    std::unique_ptr<event> made = fresh_event();
    made->which = &next;
    made->script_missing = !server_.knows_scripts && next.kind != travel_class::key_read;
    made->words.clear();
    const std::string_view refusal = server_.batch_error ? server_.batch_error(next) : std::string_view{};
    server_.begin_batch();
    for (std::size_t index = 0; index < next.count && !made->script_missing; ++index) {
      const operation& item = *next.operations.at(index);
      made->words.push_back(refusal.empty() ? server_.carry_out(item, *this, watched) : server_.refuse(item, refusal));
    }
    // Behind the notices that went out meanwhile.
    if (!stream_.empty()) made->at_us = std::max(made->at_us, stream_.back()->at_us);
    stream_.push_back(std::move(made));
  }

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
    made->all = false;
    made->script_missing = false;
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

// Any bytes from the server to a whole link: introduction, batches, notices of changes, and what comes unasked. The
// link, the connection and hiredis' asynchronous part are the real ones; only the socket's reading and writing are
// replaced.
//
// Input: what kind of link, how to cut, how it ends, then what the server says, across all connections.

#include "redis/link.hpp"

#include <async.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "batch.hpp"
#include "redis/event_loop.hpp"

namespace {

using syncguard::error;
using syncguard::lock_id;
using syncguard::engine::batch;
using syncguard::engine::batch_answer;
using syncguard::engine::operation_kind;
using syncguard::engine::outcome;
using syncguard::engine::travel_class;
using syncguard::engine::verdict;
using syncguard::fuzz::input;
using syncguard::fuzz::made_batch;

// A place where connections can be made to. Nothing is ever said there.
class listener {
 public:
  listener() {
    std::string pattern = std::filesystem::temp_directory_path() / "syncguard-fuzz-XXXXXX";
    require(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    path = folder_ / "server.sock";
    socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    require(bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    require(listen(socket_, 64) == 0);
  }
  ~listener() {
    close(socket_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  listener(const listener&) = delete;
  listener& operator=(const listener&) = delete;

  void hang_up_on_all() const {
    for (int accepted = accept(socket_, nullptr, nullptr); accepted >= 0; accepted = accept(socket_, nullptr, nullptr))
      close(accepted);
  }

  std::string path;

 private:
  std::filesystem::path folder_;
  int socket_;
};

enum class last_word : std::uint8_t { silence, hang_up, drop, stop };

struct plan {
  bool watch;
  bool with_password;
  bool destroys_inside;  // the link, in one of its owner's functions that say so
  last_word end;
  std::uint32_t cut;
};

class world final : public syncguard::redis::event_loop, public syncguard::redis::link_owner {
 public:
  world(const plan& how, const std::string& path, input& bytes)
      : how_(how),
        bytes_(bytes),
        keys_(*syncguard::protocol::key_space::make("syncguard")),
        mutation_(travel_class::mutation),
        key_read_(travel_class::key_read),
        id_read_(travel_class::id_read) {
    const lock_id id = *lock_id::parse("AAAAAAAAAAAAAAAAAAAAAA");
    for (const auto kind : {operation_kind::acquire, operation_kind::release, operation_kind::extend})
      mutation_.add(kind, "match:42", id, 30'000);
    for (const auto kind : {operation_kind::is_locked, operation_kind::lookup_key})
      key_read_.add(kind, "match:42", id, 0);
    id_read_.add(operation_kind::lookup_id, "", id, 0);

    syncguard::redis::link_options options;
    options.where.via = syncguard::redis::endpoint::transport::unix_socket;
    options.where.path = path;
    options.where.database = how.with_password ? 1 : 0;
    options.where.password = how.with_password ? "secret" : "";
    options.client_name = how.with_password ? "fuzz" : "";
    options.watch = how.watch;
    link_ = std::make_unique<syncguard::redis::link>(options, keys_, *this, *this);
  }
  ~world() {
    link_.reset();
    require(context_ == nullptr);  // hiredis' part has ended with it
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  void run() {
    constexpr int connections_max = 4;
    link_->start();
    for (int left = connections_max; left > 0 && link_ != nullptr; --left) {
      serve();
      if (link_ == nullptr || bytes_.empty()) break;
      link_->run_timer(syncguard::redis::now_us() / 1000 + 3'600'000);  // the next attempt
    }
    if (link_ != nullptr) finish();
  }

 private:
  // One connection, as long as it lasts and the server has something to say.
  void serve() {
    if (context_ != nullptr) redisAsyncHandleWrite(context_);
    end_turn();
    while (link_ != nullptr && context_ != nullptr && !bytes_.empty()) {
      redisAsyncHandleRead(context_);
      end_turn();
    }
  }

  void finish() {
    if (how_.end == last_word::drop) link_->drop({syncguard::error_code::network_timeout, "the server says nothing"});
    if (how_.end == last_word::stop) link_->stop();
    if (how_.end == last_word::hang_up && context_ != nullptr) {
      hung_up_ = true;
      redisAsyncHandleRead(context_);
    }
    end_turn();
    if (link_ != nullptr && how_.end != last_word::silence) require(context_ == nullptr);
  }

  void end_turn() {
    for (int left = 8; left > 0 && link_ != nullptr && std::exchange(turn_wanted_, false); --left) {
      link_->end_turn();
      if (link_ == nullptr) return;
      if (up_) send_all();
      link_->flush();
      if (up_) link_->poll();
    }
  }

  void send_all() {
    if (sends_left_ == 0) return;
    --sends_left_;
    for (made_batch* each : {&mutation_, &key_read_, &id_read_}) {
      if (how_.watch && each != &mutation_) continue;
      link_->send(each->get());
    }
  }

  void maybe_destroy() {
    if (how_.destroys_inside && sends_left_ < 5) link_.reset();
  }

  // link_owner
  void link_up() override {
    require(!up_);
    up_ = true;
    maybe_destroy();
  }
  void link_lost(const error& why, bool) override {
    require(!why.message().empty());
    up_ = false;
    maybe_destroy();
  }
  void unsafe_policy(std::string_view policy) override { require(policy != "noeviction"); }
  void batch_answered(batch& which, batch_answer& answer) override {
    for (std::size_t index = 0; index < which.count; ++index) {
      outcome said;
      answer.read(index, *which.operations.at(index), said);
      require((said.what == verdict::failed) == said.failure.has_value());
    }
    turn_wanted_ = true;
    maybe_destroy();
  }
  void batch_without_script(batch&) override {
    link_->load_scripts();
    turn_wanted_ = true;
    maybe_destroy();
  }
  // May come before link_up(): what is up is told at the end of the turn.
  void invalidated(std::string_view lock_key) override {
    require(how_.watch);
    for (const char byte : lock_key) told_ = static_cast<std::uint8_t>(told_ ^ static_cast<std::uint8_t>(byte));
  }
  void invalidated_all() override { require(how_.watch); }

  // event_loop
  void open(syncguard::redis::loop_sink&) override {}
  bool attach(redisAsyncContext& connection) override {
    require(context_ == nullptr);
    context_ = &connection;
    connection.ev.data = this;
    connection.ev.cleanup = [](void* self) { static_cast<world*>(self)->context_ = nullptr; };
    functions_ = *connection.c.funcs;
    functions_.read = [](redisContext* plain, char* into, std::size_t room) {
      return of(plain).read(plain, into, room);
    };
    functions_.write = [](redisContext* plain) { return static_cast<ssize_t>(sdslen(plain->obuf)); };
    connection.c.funcs = &functions_;
    return true;
  }
  void arm(std::int64_t) override {}
  void disarm() override {}
  void want_turn_end() override { turn_wanted_ = true; }
  void resolve(const std::string&) override {}
  void cancel_resolve() override {}

  // An async context begins with its plain one.
  static world& of(redisContext* plain) {
    return *static_cast<world*>(reinterpret_cast<redisAsyncContext*>(plain)->ev.data);
  }

  ssize_t read(redisContext* plain, char* into, std::size_t room) {
    if (hung_up_) {
      plain->err = REDIS_ERR_EOF;
      return -1;
    }
    const std::string_view piece = bytes_.text(std::min(room, next_cut()));
    std::copy(piece.begin(), piece.end(), into);
    return static_cast<ssize_t>(piece.size());
  }
  std::size_t next_cut() {
    if (how_.cut == 0) return 64;
    how_.cut = how_.cut * 1'103'515'245U + 12'345U;
    return 1 + (how_.cut >> 16) % 48;
  }

  plan how_;
  input& bytes_;
  syncguard::protocol::key_space keys_;
  made_batch mutation_;
  made_batch key_read_;
  made_batch id_read_;
  redisContextFuncs functions_{};
  redisAsyncContext* context_ = nullptr;
  std::unique_ptr<syncguard::redis::link> link_;
  int sends_left_ = 8;
  bool turn_wanted_ = false;
  bool up_ = false;
  bool hung_up_ = false;
  std::uint8_t told_ = 0;  // of all that was told, so that it has been read
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const listener server;
  input bytes{data, size};
  const std::uint8_t kind = bytes.byte();
  const plan how{(kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0, static_cast<last_word>(kind >> 3 & 3),
                 bytes.byte()};
  world{how, server.path, bytes}.run();
  server.hang_up_on_all();
  return 0;
}

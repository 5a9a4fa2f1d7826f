#include "redis/connection.hpp"

#include <async.h>
#include <fcntl.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "protocol/error_map.hpp"
#include "redis/event_loop.hpp"

namespace syncguard::redis {

namespace {

constexpr long long reply_elements_max = 4096;
constexpr int keepalive_seconds = 15;
constexpr int poll_rounds_max = 64;

error describe_loss(const char* text) {
  const std::string_view cause = text != nullptr ? text : "";
  error what = protocol::classify_error(cause) == error_code::network_timeout
                   ? error{error_code::network_timeout, "the connection to the server timed out"}
                   : error{error_code::service_unavailable, "the connection to the server is gone"};
  what.with_context({}, {}, cause);
  return what;
}

}  // namespace

// What lives as long as hiredis' context does, which may be longer than the connection.
struct connection::life {
  redisAsyncContext* context = nullptr;
  connection_owner* owner = nullptr;  // null: nobody wants to know any more
  tls_context* tls = nullptr;
  ssl_st* session = nullptr;
  reply_arena arena;
  std::optional<watched_socket> socket;
  bool* gone = nullptr;     // a flag on the stack of poll()
  std::uint32_t heard = 0;  // replies and pushes so far
  const redisContextFuncs* plain_functions = nullptr;
  redisContextFuncs bounded_functions{};

  static life& of(const redisAsyncContext* context) noexcept { return *static_cast<life*>(context->data); }

  // Replies that never end must not fill the memory: hiredis bounds neither a bulk's length nor its buffer.
  void bound_reads() noexcept {
    plain_functions = context->c.funcs;
    bounded_functions = *plain_functions;
    bounded_functions.read = [](redisContext* plain, char* into, std::size_t room) -> ssize_t {
      // An async context begins with its plain one.
      const life& self = of(reinterpret_cast<redisAsyncContext*>(plain));
      if (plain->reader->len - plain->reader->pos > reply_arena::reply_max_bytes) {
        plain->err = REDIS_ERR_PROTOCOL;
        std::strncpy(plain->errstr, "a reply is longer than any that was asked for", sizeof plain->errstr - 1);
        return -1;
      }
      return self.plain_functions->read(plain, into, room);
    };
    context->c.funcs = &bounded_functions;
  }

  connection_owner* let_go() noexcept {
    if (gone != nullptr) *gone = true;
    return std::exchange(owner, nullptr);
  }

  void tell_lost(const char* text) {
    connection_owner* told = let_go();
    if (told == nullptr) return;
    const std::string refused = tls_context::verify_failure(session);
    if (refused.empty()) return told->lost(describe_loss(text), false);
    error what{error_code::auth_failed, "the server's certificate was refused"};
    what.with_context({}, {}, refused);
    told->lost(std::move(what), true);
  }

  static void on_connect(const redisAsyncContext* context, int status) {
    life& self = of(context);
    if (status != REDIS_OK) return self.tell_lost(context->errstr);
    if (self.owner == nullptr) return;
    if (self.tls != nullptr) {
      self.session = self.tls->begin(self.context->c);
      if (self.session == nullptr) {
        self.tell_lost("TLS could not be begun");
        return redisAsyncFree(self.context);
      }
    }
    self.bound_reads();
    self.owner->connected();
  }

  static void on_disconnect(const redisAsyncContext* context, int /*status*/) {
    of(context).tell_lost(context->errstr);
  }

  static void on_reply(redisAsyncContext* context, void* reply, void* subject, reply_tag tag) {
    life& self = of(context);
    if (reply == nullptr || self.owner == nullptr) return;
    ++self.heard;
    const auto& said = *static_cast<redisReply*>(reply);
    // hiredis takes whatever looks like a message to a subscriber for a reply: from here on they would be mixed up.
    if (said.type == REDIS_REPLY_PUSH) {
      self.tell_lost("a message came that nobody had subscribed to");
      return redisAsyncFree(context);
    }
    self.owner->replied(tag, subject, said);
  }

  static void on_push(redisAsyncContext* context, void* push) {
    life& self = of(context);
    if (push == nullptr || self.owner == nullptr) return;
    ++self.heard;
    self.owner->pushed(*static_cast<redisReply*>(push));
  }

  // hiredis gives back one pointer per command, and it is the subject's; the tag is in which function is called.
  template <std::uint8_t Kind, std::uint8_t Step>
  static void reply_function(redisAsyncContext* context, void* reply, void* subject) {
    on_reply(context, reply, subject, {Kind, Step});
  }

  static redisCallbackFn* function_for(reply_tag tag) noexcept {
    static constexpr auto table = []<std::size_t... Index>(std::index_sequence<Index...>) {
      return std::array<redisCallbackFn*, sizeof...(Index)>{
          reply_function<static_cast<std::uint8_t>(Index / 16), static_cast<std::uint8_t>(Index % 16)>...};
    }
    (std::make_index_sequence<64>{});
    return table[tag.kind * 16U + tag.step];
  }

  static void clean_up(void* data) {
    auto* self = static_cast<life*>(data);
    if (self->plain_functions != nullptr)
      self->context->c.funcs = const_cast<redisContextFuncs*>(self->plain_functions);
    delete self;
  }
};

std::unique_ptr<connection> connection::open(const target& where, event_loop& loop, tls_context* tls,
                                             connection_owner& owner, std::optional<error>& why) {
  redisOptions options{};
  if (where.path.empty()) {
    REDIS_OPTIONS_SET_TCP(&options, where.address.c_str(), where.port);
  } else {
    REDIS_OPTIONS_SET_UNIX(&options, where.path.c_str());
  }
  redisAsyncContext* context = redisAsyncConnectWithOptions(&options);
  if (context == nullptr || context->err != 0) {
    why = describe_loss(context != nullptr ? context->errstr : "out of memory");
    redisAsyncFree(context);
    return nullptr;
  }
  fcntl(context->c.fd, F_SETFD, FD_CLOEXEC);
  if (where.path.empty()) redisEnableKeepAliveWithInterval(&context->c, keepalive_seconds);

  auto* alive = new life;
  alive->context = context;
  alive->owner = &owner;
  alive->tls = tls;
  alive->socket.emplace(context->c.fd);
  alive->arena.attach(*context->c.reader);
  context->c.reader->maxelements = reply_elements_max;
  context->data = alive;
  context->dataCleanup = life::clean_up;
  // The adapter must be there before the callbacks, which ask it to watch.
  if (!loop.attach(*context)) {
    why = error{error_code::service_unavailable, "the loop cannot watch the connection"};
    redisAsyncFree(context);
    return nullptr;
  }
  redisAsyncSetConnectCallback(context, life::on_connect);
  redisAsyncSetDisconnectCallback(context, life::on_disconnect);
  redisAsyncSetPushCallback(context, life::on_push);
  return std::unique_ptr<connection>{new connection{*alive}};
}

connection::~connection() {
  if (life_->let_go() != nullptr) redisAsyncFree(life_->context);  // else hiredis is freeing it already
}

void connection::send(std::string_view command, reply_tag tag, void* subject) {
  redisAsyncFormattedCommand(life_->context, life::function_for(tag), subject, command.data(), command.size());
}

void connection::flush() {
  if (life_->owner != nullptr) redisAsyncHandleWrite(life_->context);
}

void connection::flush_early() {
  if (life_->owner == nullptr || life_->tls != nullptr) return;  // TLS may have to read first
  int done = 0;
  redisBufferWrite(&life_->context->c, &done);
}

void connection::poll() {
  bool gone = false;
  life_->gone = &gone;
  for (int round = 0; round < poll_rounds_max; ++round) {
    if (life_->context->replies.head == nullptr) break;
    const std::uint32_t heard_before = life_->heard;
    redisAsyncHandleRead(life_->context);
    if (gone) return;
    if (life_->heard == heard_before) break;
  }
  life_->gone = nullptr;
}

}  // namespace syncguard::redis

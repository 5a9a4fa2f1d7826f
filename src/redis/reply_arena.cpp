#include "redis/reply_arena.hpp"

#include <cstring>
#include <new>

namespace syncguard::redis {

namespace {

int depth_of(const redisReadTask& task) noexcept {
  int depth = 0;
  for (const redisReadTask* each = task.parent; each != nullptr; each = each->parent) ++depth;
  return depth;
}

// A node of the type that the task says, in its place in the parent's array.
redisReply* make_node(const redisReadTask* task, int type) noexcept {
  auto& arena = *static_cast<reply_arena*>(task->privdata);
  if (task->parent == nullptr) arena.start_reply();
  void* memory = arena.take(sizeof(redisReply));
  if (memory == nullptr) return nullptr;
  auto* node = new (memory) redisReply{};
  node->type = type;
  if (task->parent != nullptr) static_cast<redisReply*>(task->parent->obj)->element[task->idx] = node;
  return node;
}

void* make_text(const redisReadTask* task, char* text, std::size_t length) {
  // A verbatim string begins with three letters and a colon.
  const std::size_t skipped = task->type == REDIS_REPLY_VERB && length >= 4 ? 4 : 0;
  redisReply* node = make_node(task, task->type);
  if (node == nullptr) return nullptr;
  node->len = length - skipped;
  node->str = static_cast<char*>(static_cast<reply_arena*>(task->privdata)->take(node->len + 1));
  if (node->str == nullptr) return nullptr;
  std::memcpy(node->str, text + skipped, node->len);
  node->str[node->len] = '\0';
  return node;
}

void* make_array(const redisReadTask* task, std::size_t elements) {
  if (depth_of(*task) >= reply_arena::depth_max) return nullptr;
  redisReply* node = make_node(task, task->type);
  if (node == nullptr) return nullptr;
  if (elements > reply_arena::reply_max_bytes / sizeof(redisReply*)) return nullptr;
  if (elements > 0) {
    const std::size_t bytes = elements * sizeof(redisReply*);
    node->element = static_cast<redisReply**>(static_cast<reply_arena*>(task->privdata)->take(bytes));
    if (node->element == nullptr) return nullptr;
    std::memset(node->element, 0, bytes);
  }
  node->elements = elements;
  return node;
}

void* make_integer(const redisReadTask* task, long long value) {
  redisReply* node = make_node(task, REDIS_REPLY_INTEGER);
  if (node != nullptr) node->integer = value;
  return node;
}

void* make_double(const redisReadTask* task, double value, char* text, std::size_t length) {
  void* made = make_text(task, text, length);
  if (made != nullptr) {
    auto* node = static_cast<redisReply*>(made);
    node->type = REDIS_REPLY_DOUBLE;
    node->dval = value;
  }
  return made;
}

void* make_nil(const redisReadTask* task) { return make_node(task, REDIS_REPLY_NIL); }

void* make_bool(const redisReadTask* task, int value) {
  redisReply* node = make_node(task, REDIS_REPLY_BOOL);
  if (node != nullptr) node->integer = value != 0 ? 1 : 0;
  return node;
}

void free_nothing(void* /*reply*/) {}

redisReplyObjectFunctions functions{make_text, make_array, make_integer, make_double,
                                    make_nil,  make_bool,  free_nothing};

}  // namespace

void reply_arena::attach(redisReader& reader) noexcept {
  reader.fn = &functions;
  reader.privdata = this;
}

void reply_arena::start_reply() noexcept {
  if (held_ > reply_max_bytes) {
    blocks_.clear();
    held_ = 0;
  }
  current_ = 0;
  used_ = 0;
  total_ = 0;
}

void* reply_arena::take(std::size_t bytes) noexcept {
  constexpr std::size_t alignment = alignof(std::max_align_t);
  bytes = (bytes + alignment - 1) & ~(alignment - 1);
  if (bytes > reply_max_bytes - total_) return nullptr;
  while (current_ < blocks_.size() && blocks_[current_].size - used_ < bytes) {
    ++current_;
    used_ = 0;
  }
  if (current_ == blocks_.size()) {
    const std::size_t size = bytes > block_bytes ? bytes : block_bytes;
    try {
      blocks_.push_back({std::make_unique<std::byte[]>(size), size});
      held_ += size;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  void* taken = blocks_[current_].memory.get() + used_;
  used_ += bytes;
  total_ += bytes;
  return taken;
}

}  // namespace syncguard::redis

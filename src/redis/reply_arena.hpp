#pragma once

// Memory for one reply at a time. hiredis builds its reply nodes through functions that take them from here, so a
// reply costs no allocation and is freed by starting the next one.
//
// The nodes are real redisReply structures, because hiredis looks into them itself. Views into its read buffer would
// not do: the reader may shift that buffer before it hands out a reply.
//
// A reply that is larger or nested deeper than any answer to this library is refused, and hiredis then ends the
// connection: a hostile or confused server must not fill the memory.

#include <cstddef>
#include <memory>
#include <vector>

#include <hiredis.h>

namespace syncguard::redis {

// Lifetime: must live as long as the reader that uses it.
// Errors: exhaustion, as hiredis reports it: out of memory.
// Allocates: when a reply is larger than every one before it.
class reply_arena {
 public:
  static constexpr std::size_t reply_max_bytes = std::size_t{16} << 20;
  static constexpr int depth_max = 8;

  // Makes a reader build its replies here.
  void attach(redisReader& reader) noexcept;

  // For the functions that hiredis calls.
  void start_reply() noexcept;
  void* take(std::size_t bytes) noexcept;

 private:
  static constexpr std::size_t block_bytes = std::size_t{16} << 10;

  struct block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size;
  };

  std::vector<block> blocks_;
  std::size_t current_ = 0;
  std::size_t used_ = 0;
  std::size_t total_ = 0;
  std::size_t held_ = 0;  // by all blocks
};

}  // namespace syncguard::redis

#pragma once

// A batch of operations as the engine would send it, made of the bytes of an input.

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/port.hpp"
#include "fuzz.hpp"

namespace syncguard::fuzz {

class made_batch {
 public:
  explicit made_batch(engine::travel_class kind) { what_.kind = kind; }

  // What the kind of the operation asks for is there: those that go by a lock id have one.
  engine::operation& add(engine::operation_kind kind, std::string_view key, const lock_id& id, std::int64_t ttl_ms) {
    auto& item = *items_.emplace_back(std::make_unique<engine::operation>());
    item.kind = kind;
    item.state = engine::operation_state::sent;
    item.ttl_ms = ttl_ms;
    const bool by_key_alone = kind == engine::operation_kind::clean_up || kind == engine::operation_kind::inspect ||
                              kind == engine::operation_kind::is_locked || kind == engine::operation_kind::lookup_key;
    if (!by_key_alone) item.id = id;
    item.key.assign(key);
    what_.operations.at(what_.count++) = &item;
    return item;
  }

  bool full() const noexcept {
    const bool is_mutation = what_.kind == engine::travel_class::mutation;
    return what_.count >= (is_mutation ? engine::batch::mutation_max : engine::batch::read_max);
  }

  engine::batch& get() noexcept { return what_; }

 private:
  engine::batch what_;
  std::vector<std::unique_ptr<engine::operation>> items_;
};

inline lock_id some_id(input& bytes) noexcept {
  std::uint8_t random[lock_id::random_bytes]{};
  for (std::uint8_t& each : random) each = bytes.byte();
  return lock_id::from_bytes(random);
}

}  // namespace syncguard::fuzz

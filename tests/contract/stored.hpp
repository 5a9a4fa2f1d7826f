#pragma once

// What is in Redis, seen and written without the client.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contract/fixture.hpp"

namespace syncguard::testing {

inline constexpr std::string_view own_id = "abcdefghijklmnopqrst-_";
inline constexpr std::string_view other_id = "AAAAAAAAAAAAAAAAAAAAAA";

redis_reply redis(const std::vector<std::string>& command);

// With the default prefix, for keys that are not hashed.
std::string lock_key(std::string_view key);
std::string index_key(std::string_view id);
std::string fence_key(std::string_view key);

bool exists(const std::string& storage_key);
std::string text_at(const std::string& storage_key);  // empty where nothing is there
long long pttl(const std::string& storage_key);
long long key_count();
std::int64_t server_now_ms();
std::int64_t to_ms(server_time time);

// A record as this library writes it.
std::string record_of(std::string_view id, std::int64_t expires_at_ms, std::string_view key = "k");

// Stores a record at the key's lock key, and the id's index key that points there. Both go after redis_ttl.
void store(std::string_view id, const std::string& record, std::string_view key = "k",
           milliseconds redis_ttl = std::chrono::seconds{60});

// A lock of this id whose record says that it expires then, while Redis keeps it for longer.
void store_expiring(std::string_view id, milliseconds from_now, std::string_view key = "k");

// Every command that the server has processed, those of redis() included: with nothing in between, two calls differ
// by one.
long long commands_processed();

// How often the server ran a command since the case began.
long long calls_of(std::string_view command);

// Whether a client of this name is connected.
bool is_connected(std::string_view client_name);

}  // namespace syncguard::testing

#include "contract/stored.hpp"

#include <syncguard/fence.hpp>
#include <syncguard/lock_id.hpp>

#include "protocol/record.hpp"

namespace syncguard::testing {

namespace {

// The number that follows `name` in what INFO says; 0 where it is not there.
long long number_in_info(const std::string& section, const std::string& name) {
  const std::string info = redis({"INFO", section}).text;
  const auto at = info.find(name);
  return at == std::string::npos ? 0 : std::stoll(info.substr(at + name.size()));
}

}  // namespace

redis_reply redis(const std::vector<std::string>& command) { return server().command(command); }

std::string lock_key(std::string_view key) { return "syncguard:" + std::string{key}; }
std::string index_key(std::string_view id) { return "syncguard:id:" + std::string{id}; }
std::string fence_key(std::string_view key) { return "syncguard:fence:syncguard:" + std::string{key}; }

bool exists(const std::string& storage_key) { return redis({"EXISTS", storage_key}).integer == 1; }
std::string text_at(const std::string& storage_key) { return redis({"GET", storage_key}).text; }
long long pttl(const std::string& storage_key) { return redis({"PTTL", storage_key}).integer; }
long long key_count() { return redis({"DBSIZE"}).integer; }

std::int64_t server_now_ms() {
  const auto time = redis({"TIME"});
  return std::stoll(time.elements.at(0).text) * 1000 + std::stoll(time.elements.at(1).text) / 1000;
}

std::int64_t to_ms(server_time time) { return time.time_since_epoch().count(); }

std::string record_of(std::string_view id, std::int64_t expires_at_ms, std::string_view key) {
  protocol::record_buffer out;
  return std::string{protocol::encode_record(
      {*lock_id::parse(id), expires_at_ms, expires_at_ms - 30'000, key, *fence::from_number(1)}, out)};
}

void store(std::string_view id, const std::string& record, std::string_view key, milliseconds redis_ttl) {
  const std::string ttl_ms = std::to_string(redis_ttl.count());
  redis({"SET", lock_key(key), record, "PX", ttl_ms});
  redis({"SET", index_key(id), lock_key(key), "PX", ttl_ms});
}

void store_expiring(std::string_view id, milliseconds from_now, std::string_view key) {
  store(id, record_of(id, server_now_ms() + from_now.count(), key), key);
}

long long commands_processed() { return number_in_info("stats", "total_commands_processed:"); }

long long calls_of(std::string_view command) {
  return number_in_info("commandstats", "cmdstat_" + std::string{command} + ":calls=");
}

bool is_connected(std::string_view client_name) {
  return redis({"CLIENT", "LIST"}).text.find(" name=" + std::string{client_name} + " ") != std::string::npos;
}

}  // namespace syncguard::testing

// Any operations as a command: it is well-formed, its counts are right, and taken apart again as lua/mutate.lua and
// lua/lookup.lua take it apart, it says what was asked for, with the keys that the protocol prescribes.

#include "redis/command_codec.hpp"

#include <yyjson.h>

#include <charconv>
#include <string>

#include "batch.hpp"
#include "protocol/config.hpp"
#include "syncguard_scripts.hpp"

namespace {

using syncguard::lock_id;
using syncguard::engine::batch;
using syncguard::engine::operation;
using syncguard::engine::operation_kind;
using syncguard::engine::travel_class;
using syncguard::fuzz::input;
using syncguard::fuzz::made_batch;
using syncguard::protocol::key_space;
using syncguard::protocol::storage_key_buffer;
using words = std::vector<std::string_view>;

std::int64_t number_of(std::string_view text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, number);
  require(failure == std::errc{} && stopped == end && !text.empty());
  return number;
}

std::size_t take_count(std::string_view& rest, char kind) {
  require(!rest.empty() && rest.front() == kind);
  const std::size_t end = rest.find("\r\n");
  require(end != std::string_view::npos);
  const std::int64_t count = number_of(rest.substr(1, end - 1));
  require(count >= 0);
  rest.remove_prefix(end + 2);
  return static_cast<std::size_t>(count);
}

words parse(std::string_view command) {
  words found(take_count(command, '*'));
  for (std::string_view& word : found) {
    const std::size_t bytes = take_count(command, '$');
    require(command.size() >= bytes + 2 && command.substr(bytes, 2) == "\r\n");
    word = command.substr(0, bytes);
    command.remove_prefix(bytes + 2);
  }
  require(command.empty());
  return found;
}

// One word after the other.
class reader {
 public:
  explicit reader(const words& all) : all_(all) {}
  std::string_view next() {
    require(at_ < all_.size());
    return all_[at_++];
  }
  bool done() const { return at_ == all_.size(); }

 private:
  const words& all_;
  std::size_t at_ = 0;
};

std::string lock_key_of(const key_space& keys, const operation& item) {
  storage_key_buffer out;
  return std::string{keys.lock_key(item.key.view(), out)};
}
std::string index_key_of(const key_space& keys, const operation& item) {
  storage_key_buffer out;
  return std::string{keys.index_key(*item.id, out)};
}
std::string fence_key_of(const key_space& keys, const operation& item) {
  storage_key_buffer out;
  return std::string{keys.fence_key(lock_key_of(keys, item), out)};
}

char big(char letter) { return static_cast<char>(letter >= 'a' ? letter - 'a' + 'A' : letter); }

char letter_of(const operation& item) {
  switch (item.kind) {
    case operation_kind::acquire: return 'A';
    case operation_kind::release: return 'R';
    case operation_kind::extend: return 'X';
    case operation_kind::clean_up: return 'C';
    default: return 'I';
  }
}

bool needs_escape(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; });
}

// What the script does with an `a`, `r` or `x`: makes the other keys, and the user key, from the one that it has.
void check_plain(char letter, const operation& item, const key_space& keys, const std::string& prefix) {
  if (letter != 'a' && letter != 'r' && letter != 'x') return;
  require(index_key_of(keys, item) == prefix + "id:" + std::string{item.id->view()});
  if (letter != 'a') return;
  require(!item.maybe_applied && !item.careful);
  const std::string lock_key = lock_key_of(keys, item);
  require(fence_key_of(keys, item) == prefix + "fence:" + lock_key);
  require(lock_key.substr(prefix.size()) == item.key.view() && !needs_escape(item.key.view()));
}

void check_escaped(std::string_view escaped, std::string_view key) {
  require(!needs_escape(key) ? escaped == key : escaped.size() > key.size());
  const std::string json = "\"" + std::string{escaped} + "\"";
  constexpr auto any_bytes = YYJSON_READ_ALLOW_INVALID_UNICODE;
  yyjson_doc* document = yyjson_read(json.data(), json.size(), any_bytes);
  yyjson_val* root = yyjson_doc_get_root(document);
  require(root != nullptr);
  require((std::string_view{yyjson_get_str(root), yyjson_get_len(root)} == key));
  yyjson_doc_free(document);
}

struct mutation_words {
  std::int64_t ttl_count;
  std::string_view letters;
  std::string_view ids;
  std::string_view ttl_names;
  std::vector<std::int64_t> ttls;
};

mutation_words read_arguments(reader& next, std::size_t operations, const std::string& prefix, bool watched) {
  mutation_words said;
  require(next.next() == prefix);
  std::string_view counted = next.next();
  require(counted.ends_with('w') == watched);
  if (watched) counted.remove_suffix(1);
  said.ttl_count = number_of(counted);
  require(said.ttl_count >= 0 && said.ttl_count <= static_cast<std::int64_t>(operations));
  said.letters = next.next();
  said.ids = next.next();
  said.ttl_names = next.next();
  require(said.letters.size() == operations && said.ttl_names.size() == operations);
  for (std::int64_t left = said.ttl_count; left > 0; --left) said.ttls.push_back(number_of(next.next()));
  return said;
}

void check_mutation(const batch& what, const key_space& keys, bool watched, const words& command) {
  const std::string prefix = keys.prefix().empty() ? std::string{} : std::string{keys.prefix()} + ":";
  reader next{command};
  require(next.next() == "EVALSHA" && next.next() == syncguard::scripts::mutate.sha1);
  const auto key_count = static_cast<std::size_t>(number_of(next.next()));
  require(key_count + 3 <= command.size());
  const auto keys_begin = command.begin() + 3;
  const words key_words{keys_begin, keys_begin + static_cast<std::ptrdiff_t>(key_count)};
  const words argument_words{keys_begin + static_cast<std::ptrdiff_t>(key_count), command.end()};
  reader next_key{key_words};
  reader next_argument{argument_words};
  mutation_words said = read_arguments(next_argument, what.count, prefix, watched);

  for (std::size_t index = 0; index < what.count; ++index) {
    const operation& item = *what.operations[index];
    const char letter = said.letters[index];
    require(big(letter) == letter_of(item));
    const bool by_id = item.kind == operation_kind::release || item.kind == operation_kind::extend;
    require(next_key.next() == (by_id ? index_key_of(keys, item) : lock_key_of(keys, item)));
    if (letter == 'A') {
      require(next_key.next() == index_key_of(keys, item) && next_key.next() == fence_key_of(keys, item));
      check_escaped(next_argument.next(), item.key.view());
    }
    if (letter == 'a' || letter == 'A' || letter == 'R' || letter == 'X') {
      require(said.ids.substr(0, lock_id::length) == item.id->view());
      said.ids.remove_prefix(lock_id::length);
    }
    if (item.kind == operation_kind::acquire || item.kind == operation_kind::extend)
      require(said.ttls.at(static_cast<std::size_t>(said.ttl_names[index] - '1')) == item.ttl_ms);
    check_plain(letter, item, keys, prefix);
  }
  if (watched)
    for (std::size_t index = 0; index < what.count; ++index) {
      const operation& item = *what.operations[index];
      if (item.kind == operation_kind::extend && !item.key.view().empty())
        require(next_key.next() == lock_key_of(keys, item));
    }
  require(next_key.done() && next_argument.done() && said.ids.empty());
}

void check_read(const batch& what, const key_space& keys, const words& command) {
  reader next{command};
  const bool by_id = what.kind == travel_class::id_read;
  if (by_id) {
    require(next.next() == "EVALSHA" && next.next() == syncguard::scripts::lookup.sha1);
    require(number_of(next.next()) == static_cast<std::int64_t>(what.count));
  } else {
    require(next.next() == "MGET");
  }
  for (std::size_t index = 0; index < what.count; ++index) {
    const operation& item = *what.operations[index];
    require(next.next() == (by_id ? index_key_of(keys, item) : lock_key_of(keys, item)));
  }
  for (std::size_t index = 0; by_id && index < what.count; ++index)
    require(next.next() == what.operations[index]->id->view());
  require(next.done());
}

operation_kind kind_in(travel_class kind, std::uint8_t choice) {
  switch (kind) {
    case travel_class::mutation: return static_cast<operation_kind>(choice % 5);
    case travel_class::key_read: return choice % 2 == 0 ? operation_kind::is_locked : operation_kind::lookup_key;
    default: return operation_kind::lookup_id;
  }
}

std::string some_prefix(input& bytes) {
  const std::uint8_t how = bytes.byte();
  if (how < 64) return "syncguard";
  if (how < 128) return std::string{bytes.text(how - 64U)};
  return std::string((how - 128U) * 8, 'p');  // up to 1016, and 951 are allowed
}

std::string some_key(input& bytes) {
  const std::uint8_t how = bytes.byte();
  if (how < 192) return std::string{bytes.text(how % 64U)};
  return std::string((how - 191U) * 8, static_cast<char>(bytes.byte()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input bytes{data, size};
  const auto keys = key_space::make(some_prefix(bytes));
  if (!keys) return 0;
  made_batch made{static_cast<travel_class>(bytes.below(3))};
  const bool watched = bytes.flag();
  batch& what = made.get();
  do {
    const std::uint8_t choice = bytes.byte();
    const std::string key = some_key(bytes);
    const lock_id id = syncguard::fuzz::some_id(bytes);
    const std::int64_t ttl_ms = (choice & 64) != 0 ? bytes.number() : bytes.magnitude();
    operation& item = made.add(kind_in(what.kind, choice % 16), key, id, ttl_ms);
    item.maybe_applied = (choice & 16) != 0;
    item.careful = (choice & 32) != 0;
  } while (!bytes.empty() && !made.full());

  syncguard::redis::resp_writer out;
  syncguard::redis::write_batch(what, *keys, out, watched);
  const words command = parse(out.text());
  if (what.kind == travel_class::mutation) {
    check_mutation(what, *keys, watched, command);
  } else {
    check_read(what, *keys, command);
  }
  return 0;
}

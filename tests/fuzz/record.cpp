// Any bytes as a stored record: the short cut for records of our own form makes no difference, a tree that yyjson built
// of the same bytes says the same, and what is complete and encoded again is the same record.

#include "protocol/record.hpp"

#include <yyjson.h>

#include <memory>
#include <string>

#include "fuzz.hpp"
#include "protocol/utf8.hpp"

namespace {

using syncguard::protocol::decoded_record;
using syncguard::protocol::record_form;

void check_same(const decoded_record& one, const decoded_record& other) {
  require(one.form == other.form);
  require(one.fault.view() == other.fault.view());
  require(one.expires_at_ms == other.expires_at_ms);
  require(one.acquired_at_ms == other.acquired_at_ms);
  require(one.id == other.id);
  require(one.token == other.token);
  require(one.key.view() == other.key.view());
}

bool is_complete(const decoded_record& record) { return record.form == record_form::current && record.fault.empty(); }

void check_round_trip(const decoded_record& record) {
  require(record.id && record.token && record.key.size() > 0);
  require(syncguard::protocol::is_utf8(record.key.view()));
  syncguard::protocol::record_buffer out;
  const std::string_view text = syncguard::protocol::encode_record(
      {*record.id, record.expires_at_ms, record.acquired_at_ms, record.key.view(), *record.token}, out);
  decoded_record again;
  syncguard::protocol::decode_record(text, again);
  check_same(record, again);
}

// The oracle: asks a tree for the value of one name, where that name occurs once.
class tree {
 public:
  explicit tree(std::string_view json)
      : document_(yyjson_read(json.data(), json.size(), YYJSON_READ_NOFLAG), yyjson_doc_free) {}

  bool is_object() const { return yyjson_is_obj(yyjson_doc_get_root(document_.get())); }

  std::size_t count(const char* name) const {
    std::size_t found = 0;
    std::size_t index = 0;
    std::size_t max = 0;
    yyjson_val* key = nullptr;
    yyjson_val* value = nullptr;
    yyjson_obj_foreach(yyjson_doc_get_root(document_.get()), index, max, key, value) found +=
        yyjson_equals_str(key, name);
    return found;
  }

  std::string text(const char* name) const {
    yyjson_val* value = yyjson_obj_get(yyjson_doc_get_root(document_.get()), name);
    return yyjson_is_str(value) ? std::string{yyjson_get_str(value), yyjson_get_len(value)} : std::string{};
  }

  double number(const char* name) const {
    return yyjson_get_num(yyjson_obj_get(yyjson_doc_get_root(document_.get()), name));
  }

 private:
  std::unique_ptr<yyjson_doc, void (*)(yyjson_doc*)> document_;
};

void check_against(const tree& oracle, const decoded_record& record) {
  if (!oracle.is_object()) {
    require(record.form == record_form::unreadable && !record.fault.empty());
    return;
  }
  const bool is_legacy = record.form == record_form::legacy;
  if (record.form == record_form::unreadable) {
    require(!record.fault.empty());
    return;
  }
  require(is_legacy == (oracle.count("expiresAtMs") == 0));
  require(oracle.count(is_legacy ? "expiresAt" : "expiresAtMs") == 1);
  require(static_cast<double>(record.expires_at_ms) == oracle.number(is_legacy ? "expiresAt" : "expiresAtMs"));
  if (record.id) require(record.id->view() == oracle.text("lockId"));
  if (record.token) require(record.token->to_text().view() == oracle.text("fence"));
  if (record.fault.empty()) {
    require(record.key.view() == oracle.text("key"));
    require(static_cast<double>(record.acquired_at_ms) == oracle.number(is_legacy ? "createdAt" : "acquiredAtMs"));
    for (const char* name : {"lockId", "key"}) require(oracle.count(name) == 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view json = syncguard::fuzz::input{data, size}.rest();
  decoded_record record;
  syncguard::protocol::decode_record(json, record);
  if (json.size() > syncguard::protocol::record_max_bytes) {
    require(record.form == record_form::unreadable && !record.fault.empty());
    return 0;
  }
  decoded_record parsed;
  syncguard::protocol::parse_record(json, parsed);
  check_same(record, parsed);
  check_against(tree{json}, record);
  if (is_complete(record)) check_round_trip(record);
  return 0;
}

// What SyncGuard 2.5 itself answers, reproduced one by one from tests/data/vectors.json. Where this library means to
// differ, the vector is named here with what it answers instead.

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <yyjson.h>

#include <syncguard/key_hash.hpp>
#include <syncguard/lock_id.hpp>
#include "protocol/config.hpp"
#include "protocol/error_map.hpp"
#include "protocol/storage_key.hpp"
#include "protocol/user_key.hpp"
#include "support/cmocka.hpp"
#include "syncguard/fence.hpp"

namespace {

using namespace syncguard::protocol;
using syncguard::error_code;
using syncguard::fence;
using syncguard::hash_key;
using syncguard::lock_id;

yyjson_doc* document = nullptr;

// SyncGuard says Internal for these, although a later try may well succeed. This library says what they are.
const std::map<std::string_view, error_code> errors_told_better{
    {"READONLY You can't write against a read only replica.", error_code::service_unavailable},
    {"LOADING Redis is loading the dataset in memory", error_code::service_unavailable},
    {"OOM command not allowed", error_code::rate_limited},
    {"BUSY Redis is busy running a script", error_code::service_unavailable},
    {"MISCONF Redis is configured", error_code::service_unavailable},
};

int load(void**) {
  const char* folder = std::getenv("SYNCGUARD_TEST_DATA");
  std::ifstream file{std::string{folder != nullptr ? folder : "tests/data"} + "/vectors.json"};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  document = yyjson_read(text.data(), text.size(), YYJSON_READ_NOFLAG);
  if (document == nullptr) print_error("vectors.json cannot be read; SYNCGUARD_TEST_DATA names its folder\n");
  return document == nullptr ? -1 : 0;
}

int unload(void**) {
  yyjson_doc_free(document);
  return 0;
}

std::string_view text(yyjson_val* object, const char* field) {
  yyjson_val* value = yyjson_obj_get(object, field);
  if (!yyjson_is_str(value)) return {};
  return {yyjson_get_str(value), yyjson_get_len(value)};
}

template <class Check>
void for_each_vector(const char* group, std::size_t wanted, Check check) {
  yyjson_val* all = yyjson_obj_get(yyjson_doc_get_root(document), group);
  assert_int_equal(yyjson_arr_size(all), wanted);
  std::size_t index = 0;
  std::size_t count = 0;
  yyjson_val* vector = nullptr;
  yyjson_arr_foreach(all, index, count, vector) check(vector);
  note("%s: %zu", group, count);
}

// The keys are either texts, or all of them an error because of the prefix.
void check_keys(yyjson_val* vector, std::string_view normalized) {
  const auto keys = key_space::make(text(vector, "prefix"));
  if (!keys) {
    assert_true(keys.error().code() == error_code::invalid_argument);
    for (const char* name : {"lockKey", "fenceKey", "indexKey"})
      assert_text_equal(text(yyjson_obj_get(vector, name), "error"), "InvalidArgument");
    return;
  }
  storage_key_buffer lock_out;
  storage_key_buffer other_out;
  const std::string_view lock_key = keys->lock_key(normalized, lock_out);
  assert_text_equal(lock_key, text(vector, "lockKey"));
  assert_text_equal(keys->fence_key(lock_key, other_out), text(vector, "fenceKey"));
  assert_text_equal(keys->index_key(*lock_id::parse("AAAAAAAAAAAAAAAAAAAAAA"), other_out), text(vector, "indexKey"));
}

void storage_keys_are_the_same(void**) {
  for_each_vector("storage", 220, [](yyjson_val* vector) {
    user_key_buffer buffer;
    const auto key = normalize_user_key(text(vector, "key"), buffer);
    if (const auto code = text(vector, "error"); !code.empty()) {
      assert_text_equal(code, "InvalidArgument");
      assert_failed_with(key, error_code::invalid_argument);
      return;
    }
    assert_true(key.has_value());
    assert_text_equal(*key, text(vector, "normalized"));
    check_keys(vector, *key);
  });
}

void hashes_are_the_same(void**) {
  for_each_vector("hashes", 110, [](yyjson_val* vector) {
    assert_text_equal(hash_key(text(vector, "key"))->view(), text(vector, "hash"));
  });
}

void lock_ids_are_judged_the_same(void**) {
  for_each_vector("lockIds", 9, [](yyjson_val* vector) {
    const bool valid = yyjson_get_bool(yyjson_obj_get(vector, "valid"));
    assert_int_equal(lock_id::parse(text(vector, "id")).has_value(), valid);
  });
}

void fences_are_written_the_same(void**) {
  for_each_vector("fences", 9, [](yyjson_val* vector) {
    const auto written = fence::from_number(yyjson_get_sint(yyjson_obj_get(vector, "n")));
    assert_int_equal(written.has_value(), yyjson_get_bool(yyjson_obj_get(vector, "ok")));
    if (written) {
      assert_text_equal(written->to_text(), text(vector, "value"));
    } else {
      assert_text_equal(to_string(written.error().code()), text(vector, "code"));
    }
  });
}

void errors_are_told_the_same_or_better(void**) {
  std::size_t better = 0;
  for_each_vector("errors", 16, [&](yyjson_val* vector) {
    const std::string_view message = text(vector, "message");
    const auto named = errors_told_better.find(message);
    if (named == errors_told_better.end()) {
      assert_text_equal(to_string(classify_error(message)), text(vector, "code"));
      return;
    }
    assert_text_equal(text(vector, "code"), "Internal");
    assert_true(classify_error(message) == named->second);
    note("told better: %s", std::string{message}.c_str());
    ++better;
  });
  assert_int_equal(better, errors_told_better.size());
}

void prefixes_are_judged_the_same(void**) {
  for_each_vector("keyPrefixes", 9, [](yyjson_val* vector) {
    const bool valid = yyjson_get_bool(yyjson_obj_get(vector, "valid"));
    assert_int_equal(validate_prefix(text(vector, "keyPrefix")).has_value(), valid);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(storage_keys_are_the_same),          cmocka_unit_test(hashes_are_the_same),
      cmocka_unit_test(lock_ids_are_judged_the_same),       cmocka_unit_test(fences_are_written_the_same),
      cmocka_unit_test(errors_are_told_the_same_or_better), cmocka_unit_test(prefixes_are_judged_the_same),
  };
  return cmocka_run_group_tests(tests, load, unload);
}

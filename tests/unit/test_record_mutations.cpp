// Damaged records: cut off at every byte, and changed at random. Each text lies in a block of exactly its size, so
// that a sanitizer sees any read beyond it. SYNCGUARD_SEED repeats a run.

#include "protocol/record.hpp"

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/cmocka.hpp"
#include "support/mutations.hpp"

namespace {

namespace testing = syncguard::testing;

using namespace std::string_view_literals;
using namespace syncguard::protocol;
using syncguard::fence;
using syncguard::lock_id;

constexpr int mutations = 100'000;

const std::vector<std::string>& valid_records() {
  static const std::vector<std::string> records = [] {
    std::vector<std::string> all{
        R"({"lockId":"abcdefghijklmnopqrst-_","expiresAt":1700000030000,"createdAt":1700000000000,"key":"old"})",
        R"( { "fence" : "000000000000042", "extra" : { "lockId" : [ "x", null, -1.5e3, true, {} ] },
          "key":"\u006d\ud83d\udd12\"\\\n", "acquiredAtMs":1700000000000.0, "expiresAtMs" : 1.70000003e12,
          "lockId":"abcdefghijklmnopqrst-_" })",
    };
    for (const std::string_view key : {"match:42", "\"quoted\\\n\x01", "\u00e9\u9375\U0001f512"}) {
      record_buffer out;
      all.emplace_back(encode_record({*lock_id::parse("AAAAAAAAAAAAAAAAAAAAAA"), 1'700'000'030'000, 1'700'000'000'000,
                                      key, *fence::from_number(42)},
                                     out));
    }
    return all;
  }();
  return records;
}

// Decodes, and sees that the short cut makes no difference.
void decode_exact(std::string_view json, decoded_record& out) {
  const auto block = std::make_unique<char[]>(json.size());
  std::copy(json.begin(), json.end(), block.get());
  decode_record({block.get(), json.size()}, out);
  if (json.size() > record_max_bytes) return;
  decoded_record parsed;
  parse_record({block.get(), json.size()}, parsed);
  assert_true(parsed.form == out.form && parsed.id == out.id && parsed.token == out.token);
  assert_text_equal(parsed.fault, out.fault);
  assert_text_equal(parsed.key.view(), out.key.view());
  assert_int_equal(parsed.expires_at_ms, out.expires_at_ms);
  assert_int_equal(parsed.acquired_at_ms, out.acquired_at_ms);
}

// What may be relied on after decoding, whatever the input was.
void assert_consistent(const decoded_record& seen) {
  if (seen.form == record_form::unreadable) assert_false(seen.fault.empty());
  if (!seen.fault.empty()) return;
  assert_true(seen.id.has_value());
  assert_in_range(seen.key.size(), 1, user_key_max_bytes);
  assert_int_equal(seen.token.has_value(), seen.form == record_form::current);
  if (seen.form != record_form::current) return;

  record_buffer out;
  decoded_record again;
  decode_record(encode_record({*seen.id, seen.expires_at_ms, seen.acquired_at_ms, seen.key.view(), *seen.token}, out),
                again);
  assert_text_equal(again.fault, "");
  assert_true(again.id == seen.id && again.token == seen.token);
  assert_int_equal(again.expires_at_ms, seen.expires_at_ms);
  assert_int_equal(again.acquired_at_ms, seen.acquired_at_ms);
  assert_text_equal(again.key.view(), seen.key.view());
}

void truncation_at_every_byte_is_unreadable(void**) {
  int cuts = 0;
  for (const std::string& record : valid_records()) {
    decoded_record whole;
    decode_exact(record, whole);
    assert_text_equal(whole.fault, "");
    for (std::size_t length = 0; length <= record.find_last_of('}'); ++length, ++cuts) {
      decoded_record cut;
      decode_exact(std::string_view{record}.substr(0, length), cut);
      assert_true(cut.form == record_form::unreadable);
      assert_consistent(cut);
    }
  }
  note("%d cuts", cuts);
}

constexpr std::string_view telling_bytes = "{}[]\":,\\u0123456789eE+-.tfn \n\x00\x7f\x80\xc3\xff"sv;

void random_mutations_are_survived(void**) {
  std::mt19937_64 random{testing::random_seed()};
  int readable = 0;
  int complete = 0;
  for (int i = 0; i < mutations; ++i) {
    const auto& records = valid_records();
    decoded_record seen;
    decode_exact(testing::mutate(records[static_cast<std::size_t>(i) % records.size()], records, telling_bytes, random),
                 seen);
    assert_consistent(seen);
    readable += seen.form == record_form::unreadable ? 0 : 1;
    complete += seen.fault.empty() ? 1 : 0;
  }
  note("%d mutations: %d still tell when they expire, %d are still complete", mutations, readable, complete);
  assert_in_range(readable, 1, mutations - 1);
  assert_in_range(complete, 1, readable);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(truncation_at_every_byte_is_unreadable),
      cmocka_unit_test(random_mutations_are_survived),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

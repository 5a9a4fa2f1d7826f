#include "protocol/record.hpp"

#include <string>

#include "support/cmocka.hpp"

namespace {

using namespace syncguard::protocol;
using namespace std::string_view_literals;
using syncguard::fence;
using syncguard::lock_id;

constexpr std::string_view complete =
    R"({"lockId":"abcdefghijklmnopqrst-_","expiresAtMs":1700000030000,"acquiredAtMs":1700000000000,)"
    R"("key":"match:42","fence":"000000000000042"})";

struct decoded {
  explicit decoded(std::string_view json) { decode_record(json, record); }
  decoded_record record;
};

std::string with(std::string_view from, std::string_view to) {
  std::string json{complete};
  const auto at = json.find(from);
  assert_true(at != std::string::npos);
  return json.replace(at, from.size(), to);
}

void assert_complete(const decoded_record& record) {
  assert_text_equal(record.fault, "");
  assert_true(record.form == record_form::current);
  assert_text_equal(record.id->view(), "abcdefghijklmnopqrst-_");
  assert_int_equal(record.expires_at_ms, 1'700'000'030'000);
  assert_int_equal(record.acquired_at_ms, 1'700'000'000'000);
  assert_text_equal(record.key.view(), "match:42");
  assert_int_equal(record.token->number(), 42);
}

void assert_unreadable(std::string_view json, std::string_view fault) {
  const decoded seen{json};
  assert_true(seen.record.form == record_form::unreadable);
  assert_text_equal(seen.record.fault, fault);
}

void assert_fault(std::string_view json, std::string_view fault) {
  const decoded seen{json};
  assert_true(seen.record.form == record_form::current);
  assert_text_equal(seen.record.fault, fault);
  assert_int_equal(seen.record.expires_at_ms, 1'700'000'030'000);
}

void complete_record_is_read(void**) { assert_complete(decoded{complete}.record); }

void order_whitespace_escapes_and_further_fields_do_not_matter(void**) {
  assert_complete(decoded{R"( { "fence" : "000000000000042" , "extra" : { "lockId" : [ "x" , null , { } ] } ,
    "key":"\u006datch\u003a42", "acquiredAtMs":1700000000000, "expires\u0041tMs" : 1700000030000,
    "lockId":"abcdefghijklmnopqrst-_", "": 1, "expiresAt": "ignored" } )"}
                      .record);
}

void numbers_may_be_written_as_doubles(void**) {
  assert_complete(decoded{with("1700000030000", "1.70000003e12")}.record);
  assert_complete(decoded{with("1700000000000", "1700000000000.0")}.record);
}

void key_is_unescaped(void**) {
  const decoded seen{with("match:42", R"(\"\\\/\b\f\n\r\t\u0000\u00e9\ud83d\udd12)")};
  assert_text_equal(seen.record.key.view(), "\"\\/\b\f\n\r\t\0\u00e9\U0001f512"sv);
}

void fields_inside_a_key_are_not_fields(void**) {
  const decoded seen{with("match:42", R"(\",\"expiresAtMs\":9,\"lockId\":\"AAAAAAAAAAAAAAAAAAAAAA\")")};
  assert_text_equal(seen.record.fault, "");
  assert_int_equal(seen.record.expires_at_ms, 1'700'000'030'000);
  assert_text_equal(seen.record.id->view(), "abcdefghijklmnopqrst-_");
}

void legacy_record_counts_by_its_time(void**) {
  const decoded seen{
      R"({"lockId":"abcdefghijklmnopqrst-_","expiresAt":1700000030000,"createdAt":1700000000000,"key":"match:42"})"};
  assert_true(seen.record.form == record_form::legacy);
  assert_text_equal(seen.record.fault, "");
  assert_int_equal(seen.record.expires_at_ms, 1'700'000'030'000);
  assert_int_equal(seen.record.acquired_at_ms, 1'700'000'000'000);
  assert_false(seen.record.token.has_value());
}

void expiry_counts_even_where_the_rest_is_wrong(void**) {
  assert_fault(R"({"expiresAtMs":1700000030000})", "lockId is missing");
  assert_fault(with("abcdefghijklmnopqrst-_", "short"), "lockId is not a lock id");
  assert_fault(with(R"("abcdefghijklmnopqrst-_")", "7"), "lockId is not a lock id");
  assert_fault(with("acquiredAtMs", "other"), "acquiredAtMs is missing");
  assert_fault(with("1700000000000", "\"1700000000000\""), "acquiredAtMs is not a whole number of milliseconds");
  assert_fault(with("\"match:42\"", "null"), "key is not a text of 1 to 512 bytes");
  assert_fault(with("match:42", ""), "key is not a text of 1 to 512 bytes");
  assert_fault(with("match:42", std::string(513, 'k')), "key is not a text of 1 to 512 bytes");
  assert_fault(with("\"000000000000042\"", "42"), "fence is not a text of 15 digits");
  assert_fault(with("000000000000042", "0000000000000000042"), "fence is not a text of 15 digits");
  assert_fault(with("\"fence\"", "\"key\":\"again\",\"fence\""), "key occurs twice");
  assert_fault(with("\"fence\"", "\"lockId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"fence\""), "lockId occurs twice");
  const decoded ambiguous{with("\"fence\"", "\"lockId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"fence\"")};
  assert_false(ambiguous.record.id.has_value());
}

void record_without_a_readable_expiry_is_unreadable(void**) {
  constexpr std::string_view malformed = "expiresAtMs is not a whole number of milliseconds";
  assert_unreadable(with("expiresAtMs", "other"), "expiresAtMs is missing");
  assert_unreadable("{}", "expiresAtMs is missing");
  for (const std::string_view bad : {"null", "true", "\"1700000030000\"", "[1]", "{}", "1700000030000.5", "-1.5",
                                     "9007199254740993", "-9007199254740993", "18446744073709551615", "1e300"})
    assert_unreadable(with("1700000030000", bad), malformed);
  assert_unreadable(with("\"fence\"", "\"expiresAtMs\":1,\"fence\""), "expiresAtMs occurs twice");
  assert_unreadable(R"({"expiresAt":1,"expiresAt":2})", "expiresAtMs occurs twice");
  assert_unreadable(R"({"expiresAt":"soon"})", malformed);
}

void times_at_the_edge_of_exact_numbers_are_read(void**) {
  assert_int_equal(decoded{with("1700000030000", "9007199254740992")}.record.expires_at_ms, 9'007'199'254'740'992);
  assert_int_equal(decoded{with("1700000030000", "-9007199254740992")}.record.expires_at_ms, -9'007'199'254'740'992);
  assert_int_equal(decoded{with("1700000030000", "-1")}.record.expires_at_ms, -1);
  assert_int_equal(decoded{with("1700000030000", "0")}.record.expires_at_ms, 0);
}

void what_is_not_a_json_object_is_unreadable(void**) {
  for (const std::string_view bad :
       {"", " ", "{", "}", "nonsense", "{\"a\":}", "{\"a\":1,}", "{'a':1}", "{\"a\":NaN}", "{\"a\":1e999}",
        "{\"a\":01}", "\xef\xbb\xbf{}", "{\"a\":\"\xff\"}", "{\"a\":\"\\ud800\"}", "{} {}", "{\"a\":\"\n\"}"})
    assert_unreadable(bad, "the record is not JSON");
  for (const std::string_view bad : {"[]", "1", "\"text\"", "null", "true"})
    assert_unreadable(bad, "the record is not a JSON object");
  assert_unreadable("\0"sv, "the record is not JSON");
  assert_unreadable(std::string{complete} + std::string(1, '\0'), "the record is not JSON");
}

void deep_nesting_is_survived(void**) {
  const std::string open(1000, '[');
  const std::string close(1000, ']');
  assert_unreadable(open, "the record is not JSON");
  assert_unreadable(open + close, "the record is not a JSON object");
  assert_complete(decoded{with("\"fence\"", "\"deep\":" + open + close + ",\"fence\"")}.record);
  std::string objects;
  for (int depth = 0; depth < 1000; ++depth) objects += "{\"\":";
  assert_unreadable(objects.substr(0, 4096), "the record is not JSON");
}

void everything_that_fits_the_limit_fits_the_pool(void**) {
  // The shapes that cost yyjson most for their length.
  for (const std::string_view unit : {"[", "{", "1,", "\"\",", "\"a\":", "[],", "{},", "\\u0000", "\"", ","}) {
    std::string body;
    while (body.size() + unit.size() <= 4000) body += unit;
    const decoded inside_array{"[" + body + "1]"};
    assert_true(inside_array.record.form == record_form::unreadable);
    const decoded bare{body};
    assert_true(bare.record.form == record_form::unreadable);
  }
  std::string many = "{\"expiresAtMs\":5,\"x\":[1";
  while (many.size() + 4 <= record_max_bytes) many += ",1";
  many += "]}";
  assert_int_equal(decoded{many}.record.expires_at_ms, 5);
}

void oversized_values_are_refused_unread(void**) {
  constexpr std::string_view fault = "the record is longer than 4096 bytes";
  assert_unreadable(std::string(10'000'000, '9'), fault);
  assert_unreadable(std::string(record_max_bytes + 1, '{'), fault);
  std::string padded{complete};
  padded.resize(record_max_bytes, ' ');
  assert_complete(decoded{padded}.record);
  padded += ' ';
  assert_unreadable(padded, fault);
}

void written_record_is_read_back(void**) {
  record_buffer out;
  constexpr std::string_view awkward = "a\"b\\c\n\0\x1f\u00e9\U0001f512\"},"sv;
  const record_fields fields{*lock_id::parse("AAAAAAAAAAAAAAAAAAAAAA"), 1'700'000'030'000, 1'700'000'000'000, awkward,
                             *fence::from_number(7)};
  const decoded back{encode_record(fields, out)};
  assert_text_equal(back.record.fault, "");
  assert_true(*back.record.id == fields.id);
  assert_int_equal(back.record.expires_at_ms, fields.expires_at_ms);
  assert_int_equal(back.record.acquired_at_ms, fields.acquired_at_ms);
  assert_text_equal(back.record.key.view(), awkward);
  assert_true(*back.record.token == fields.token);
}

void written_record_has_the_five_fields_in_order(void**) {
  record_buffer out;
  const record_fields fields{*lock_id::parse("abcdefghijklmnopqrst-_"), 1'700'000'030'000, 1'700'000'000'000,
                             "match:42", *fence::from_number(42)};
  assert_text_equal(encode_record(fields, out), complete);
}

void longest_record_fits(void**) {
  record_buffer out;
  const std::string key(user_key_max_bytes, '\x01');
  const record_fields fields{*lock_id::parse("AAAAAAAAAAAAAAAAAAAAAA"), -9'007'199'254'740'992, -9'007'199'254'740'992,
                             key, *fence::from_number(999'999'999'999'999)};
  const decoded back{encode_record(fields, out)};
  assert_text_equal(back.record.fault, "");
  assert_text_equal(back.record.key.view(), key);
  note("the longest record has %zu bytes", out.size());
  assert_true(out.size() <= 3207);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(complete_record_is_read),
      cmocka_unit_test(order_whitespace_escapes_and_further_fields_do_not_matter),
      cmocka_unit_test(numbers_may_be_written_as_doubles),
      cmocka_unit_test(key_is_unescaped),
      cmocka_unit_test(fields_inside_a_key_are_not_fields),
      cmocka_unit_test(legacy_record_counts_by_its_time),
      cmocka_unit_test(expiry_counts_even_where_the_rest_is_wrong),
      cmocka_unit_test(record_without_a_readable_expiry_is_unreadable),
      cmocka_unit_test(times_at_the_edge_of_exact_numbers_are_read),
      cmocka_unit_test(what_is_not_a_json_object_is_unreadable),
      cmocka_unit_test(deep_nesting_is_survived),
      cmocka_unit_test(everything_that_fits_the_limit_fits_the_pool),
      cmocka_unit_test(oversized_values_are_refused_unread),
      cmocka_unit_test(written_record_is_read_back),
      cmocka_unit_test(written_record_has_the_five_fields_in_order),
      cmocka_unit_test(longest_record_fits),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Strict reading of JSON: what is refused, and that errors name file, field and remedy.
#include "stp/base/json_input.h"
#include "support/folder.h"
#include "support/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace stp {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string parse_refusal(const std::string& text) {
  return refusal([&] { parse_json(text, "f.json"); });
}

// ---- errors ----

TEST(InputError, ReadsFileFieldProblemRemedyAndLeavesOutWhatIsEmpty) {
  EXPECT_STREQ(InputError("f.json", "a.b", "is wrong", "fix it").what(), "f.json: a.b: is wrong; fix it");
  EXPECT_STREQ(InputError("", "a.b", "is wrong", "fix it").what(), "a.b: is wrong; fix it");
  EXPECT_STREQ(InputError("f.json", "", "is wrong", "").what(), "f.json: is wrong");
}

TEST(InputError, TakesAFileAndAFieldOnlyWhereItHasNone) {
  const InputError bare("", "", "is wrong", "fix it");
  EXPECT_STREQ(bare.in_file("f.json").in_field("a").what(), "f.json: a: is wrong; fix it");
  EXPECT_STREQ(bare.in_field("a").in_file("f.json").in_file("g.json").in_field("b").what(),
               "f.json: a: is wrong; fix it");
}

// ---- syntax ----

TEST(ParseJson, AcceptsPlainJson) {
  EXPECT_EQ(parse_json(R"( {"a": [1, 2.5, -3e-2, "x", true, null, {"b": {}}]} )", "f.json")["a"].size(), 7U);
}

TEST(ParseJson, RefusesWhatIsNotJsonAndNamesFileLineAndTheKeyBefore) {
  for (const std::string value :
       {"NaN", "nan", "Infinity", "-Infinity", "inf", "+1", "01", "1.", ".5", "0x10", "1_000", "'x'", "x",
        "True", "1,", "[1,]", "{\"c\": 1,}", "\"open", ""}) {
    EXPECT_THAT(parse_refusal("{\"first\": 1,\n \"second\": " + value + "}"),
                AllOf(StartsWith("f.json:2:"), HasSubstr("is not valid JSON; ")))
        << value;
  }
  EXPECT_THAT(parse_refusal("{\"first\": 1,\n \"second\": NaN}"), HasSubstr("f.json:2:12: second: is not"));
  EXPECT_THAT(parse_refusal("{\"first\": \"Table 3: all\",}"), HasSubstr("f.json:1:26: first: is not"));
  EXPECT_EQ(parse_refusal("{\"a\":\n\"\xe9\"}"),
            "f.json:2:3: a: holds bytes that are not UTF-8; save it as UTF-8 text");
}

TEST(ParseJson, RefusesCommentsTrailingTextAndEmptyText) {
  for (const std::string text : {"{\"a\": 1 // why\n}", "{/* why */ \"a\": 1}", "# why\n{\"a\": 1}"})
    EXPECT_THAT(parse_refusal(text), AllOf(StartsWith("f.json:1:"), HasSubstr("is not valid JSON"))) << text;
  for (const std::string text : {"{\"a\": 1} {\"a\": 2}", "{\"a\": 1}]", "{} x", "[1] 2"})
    EXPECT_THAT(parse_refusal(text), HasSubstr("text follows the end of the JSON value; remove it")) << text;
  EXPECT_THAT(parse_refusal("{}\n\n  x"), StartsWith("f.json:3:3: "));
  for (const std::string text : {"", " \n"})
    EXPECT_EQ(parse_refusal(text), "f.json: is empty; write a JSON object");
}

TEST(ParseJson, RefusesNumbersBeyondDoublePrecision) {
  for (const std::string number : {"1e999", "-1e999", "1e309"})
    EXPECT_THAT(
        parse_refusal("{\"a\": " + number + "}"),
        AllOf(StartsWith("f.json: a: "), HasSubstr("beyond double precision; write a finite number")));
  EXPECT_EQ(parse_refusal("{\"a\": 1e308}"), "");
  EXPECT_EQ(parse_refusal("{\"a\": 1e-999}"), "");  // zero
}

TEST(ParseJson, RefusesAKeyGivenTwiceInOneObjectAlone) {
  for (const std::string text :
       {R"({"a": 1, "a": 1})", R"({"b": {"a": 1, "c": {"a": 1}, "a": 2}})",
        R"([{"x": 0}, {"a": 1, "b": [{"a": 1}], "a": 2}])", R"({"a": 1, "\u0061": 2})"})
    EXPECT_THAT(parse_refusal(text), AllOf(StartsWith("f.json: "), HasSubstr("a: is given twice; keep one")))
        << text;
  EXPECT_EQ(parse_refusal(R"({"x": {"y": 1}, "b": {"c": [{"a": 1, "a": 2}]}})"),
            "f.json: b.c.a: is given twice; keep one of them");
  EXPECT_EQ(parse_refusal(R"({"a": {"a": [{"a": 1}, {"a": 1}]}, "b": {"a": 1}})"), "");
}

// At any depth the text is read or refused; incomplete text is refused.
TEST(ParseJson, SurvivesDeepNesting) {
  constexpr size_t kDepth = 200000;
  const std::string open(kDepth, '['), close(kDepth, ']');
  std::string objects;
  for (size_t i = 0; i < kDepth; ++i) objects += "{\"a\":";
  for (const std::string& whole : {open + close, objects + "1" + std::string(kDepth, '}')}) {
    const std::string message = parse_refusal(whole);
    if (!message.empty()) {
      EXPECT_THAT(message, AllOf(StartsWith("f.json"), HasSubstr("; ")));
    }
  }
  for (const std::string& torn : {open, objects}) EXPECT_THAT(parse_refusal(torn), StartsWith("f.json"));
  const std::string shallow(50, '['), end(50, ']');
  EXPECT_EQ(parse_refusal(shallow + end), "");
}

using JsonFile = FolderTest;

TEST_F(JsonFile, IsReadOrRefusedByItsPath) {
  const std::string path = folder_ + "/a.json";
  std::ofstream(path) << R"({"a": 7})";
  EXPECT_EQ(read_json_file(path)["a"], 7);
  std::ofstream(path) << R"({"a": })";
  EXPECT_THAT(refusal([&] { read_json_file(path); }), StartsWith(path + ":1:7: a: is not valid JSON; "));
  EXPECT_EQ(refusal([&] { read_json_file(folder_); }), folder_ + ": is a folder; name a file");
  for (const std::string& missing : {folder_ + "/none.json", std::string()})
    EXPECT_THAT(refusal([&] { read_json_file(missing); }),
                AllOf(StartsWith(missing), HasSubstr("cannot be read; check the path")));
}

TEST_F(JsonFile, IsReadWithoutItsByteOrderMarkAndNotAsUtf16) {
  const std::string path = folder_ + "/a.json";
  std::ofstream(path) << "\xEF\xBB\xBF{\"a\": 7}";
  EXPECT_EQ(read_text_file(path), "{\"a\": 7}");
  EXPECT_EQ(read_json_file(path)["a"], 7);
  for (const std::string& text :
       {std::string("\xFF\xFE{\0", 4), std::string("\xFE\xFF\0{", 4), std::string("{\0", 2)}) {
    std::ofstream(path) << text;
    EXPECT_EQ(refusal([&] { read_text_file(path); }),
              path + ": holds NUL bytes: it is UTF-16, or no text; save it as UTF-8 text");
  }
}

TEST_F(JsonFile, IsLimitedInSize) {
  const std::string path = folder_ + "/a.json";
  std::ofstream(path) << "{}";
  std::filesystem::resize_file(path, kLargestInput);
  EXPECT_EQ(read_file(path).size(), kLargestInput);
  std::filesystem::resize_file(path, kLargestInput + 1);
  EXPECT_EQ(refusal([&] { read_file(path); }), path + ": is larger than 256 MiB; name a smaller file");
}

// ---- fields ----

TEST(JsonInput, IsAnObject) {
  const json array = json::parse("[1]"), number = 3;
  EXPECT_EQ(refusal([&] { JsonInput(array, "f.json", "a.b"); }),
            "f.json: a.b: must be an object, not an array; write {…}");
  EXPECT_THAT(refusal([&] { JsonInput(number, "f.json"); }),
              StartsWith("f.json: must be an object, not a number"));
}

TEST(JsonInput, ReadsEveryTypeAndKnowsWhatWasAsked) {
  const json value = json::parse(
      R"({"s": "x", "b": true, "i": 3, "n": 2, "l": [1, 2], "o": {"p": 1.5}, "a": [1, "y"], "v": null, "c": 0})");
  JsonInput input(value, "f.json");
  EXPECT_EQ(input.string("s"), "x");
  EXPECT_EQ(input.string_or("s2", "z"), "z");
  EXPECT_TRUE(input.boolean_or("b", false));
  EXPECT_TRUE(input.boolean_or("b2", true));
  EXPECT_EQ(input.integer("i", 0), 3);
  EXPECT_EQ(input.integer_or("i2", 4, 0), 4);
  EXPECT_EQ(input.number("n", 0, 9), 2.0);
  EXPECT_EQ(input.number_or("n2", 0.5, 0, 9), 0.5);
  EXPECT_THAT(input.integers("l", 1), ElementsAre(1, 2));
  EXPECT_EQ(input.object("o").number("p", 1, 2), 1.5);
  EXPECT_EQ(input.array("a").size(), 2U);
  EXPECT_TRUE(input.value("v").is_null());
  EXPECT_THAT(refusal([&] { input.done(); }), HasSubstr("f.json: c: is not a known field here"));
  input.ignore("c");
  EXPECT_NO_THROW(input.done());
  EXPECT_THAT(input.keys(), ElementsAre("a", "b", "c", "i", "l", "n", "o", "s", "v"));
}

TEST(JsonInput, RefusesAMissingFieldByItsPath) {
  const json value = json::parse(R"({"a": {"b": {}}})");
  JsonInput input(value, "f.json");
  JsonInput inner = input.object("a").object("b");
  for (const std::string& message :
       {refusal([&] { inner.string("c"); }), refusal([&] { inner.integer("c", 0); }),
        refusal([&] { inner.number("c", 0, 1); }), refusal([&] { inner.integers("c", 0); }),
        refusal([&] { inner.object("c"); }), refusal([&] { inner.array("c"); }),
        refusal([&] { inner.value("c"); })})
    EXPECT_EQ(message, "f.json: a.b.c: is missing; add it");
}

TEST(JsonInput, RefusesTheWrongTypeByPathAndSaysWhatStandsThere) {
  const json value =
      json::parse(R"({"o": {"s": "x", "n": 1, "f": 1.5, "b": true, "l": [1], "q": {}, "z": null}})");
  JsonInput root(value, "f.json");
  JsonInput o = root.object("o");
  const auto is = [](const std::string& field, const std::string& wanted, const std::string& got) {
    return AllOf(StartsWith("f.json: o." + field + ": must be " + wanted + ", not " + got + "; "),
                 Not(EndsWith("; ")));
  };
  EXPECT_THAT(refusal([&] { o.string("n"); }), is("n", "a string", "a number"));
  EXPECT_THAT(refusal([&] { o.string_or("z", ""); }), is("z", "a string", "null"));
  EXPECT_THAT(refusal([&] { o.boolean_or("n", true); }), is("n", "true or false", "a number"));
  EXPECT_THAT(refusal([&] { o.boolean_or("s", true); }), is("s", "true or false", "a string"));
  EXPECT_THAT(refusal([&] { o.integer("s", 0); }), is("s", "a whole number", "a string"));
  EXPECT_THAT(refusal([&] { o.integer("b", 0); }), is("b", "a whole number", "a boolean"));
  EXPECT_THAT(refusal([&] { o.integer_or("f", 0, 0); }),
              is("f", "a whole number", "a number with a fraction"));
  EXPECT_THAT(refusal([&] { o.number("s", 0, 1); }), is("s", "a number", "a string"));
  EXPECT_THAT(refusal([&] { o.number_or("l", 0, 0, 1); }), is("l", "a number", "an array"));
  EXPECT_THAT(refusal([&] { o.array("q"); }), is("q", "an array", "an object"));
  EXPECT_THAT(refusal([&] { o.integers("n", 0); }), is("n", "an array", "a number"));
  EXPECT_THAT(refusal([&] { o.object("l"); }), is("l", "an object", "an array"));
}

TEST(JsonInput, HoldsIntegersToTheirRangeHoweverLarge) {
  const auto read = [](const std::string& number, int low, int high) {
    const json value = json::parse("{\"a\": {\"n\": " + number + "}}");
    JsonInput root(value, "f.json");
    int got = 0;
    const std::string message = refusal([&] { got = root.object("a").integer("n", low, high); });
    return message.empty() ? std::to_string(got) : message;
  };
  constexpr int kMin = std::numeric_limits<int>::min(), kMax = std::numeric_limits<int>::max();
  EXPECT_EQ(read("1", 1, 3), "1");
  EXPECT_EQ(read("3", 1, 3), "3");
  EXPECT_EQ(read("-0", 0, 3), "0");
  EXPECT_EQ(read("2147483647", 1, kMax), "2147483647");
  EXPECT_EQ(read("-2147483648", kMin, kMax), "-2147483648");
  EXPECT_EQ(read("0", 1, 3), "f.json: a.n: 0 is out of range; write a whole number from 1 to 3");
  EXPECT_EQ(read("4", 1, 3), "f.json: a.n: 4 is out of range; write a whole number from 1 to 3");
  EXPECT_EQ(read("0", 1, kMax), "f.json: a.n: 0 is out of range; write a whole number from 1 up");
  for (const std::string number : {"2147483648", "4294967297", "9223372036854775807", "9223372036854775808",
                                   "18446744073709551615", "-2147483649", "-9223372036854775808"})
    EXPECT_THAT(read(number, kMin, kMax), HasSubstr("a.n: " + number + " is out of range; ")) << number;
  EXPECT_THAT(read("2147483648", 0, kMax), HasSubstr("write a whole number from 0 to 2147483647"));
  // Beyond 64 bits JSON's numbers become doubles; also refused.
  for (const std::string number :
       {"18446744073709551616", "-9223372036854775809", "99999999999999999999999", "1e3"})
    EXPECT_THAT(read(number, kMin, kMax), HasSubstr("f.json: a.n: must be a whole number")) << number;
}

TEST(JsonInput, NamesTheElementOfAnArrayOfIntegers) {
  const json value = json::parse(R"({"a": {"l": [1, 2, 9], "m": [1, "2"], "n": [1.5], "e": []}})");
  JsonInput root(value, "f.json");
  JsonInput a = root.object("a");
  EXPECT_EQ(refusal([&] { a.integers("l", 0, 8); }),
            "f.json: a.l[2]: 9 is out of range; write a whole number from 0 to 8");
  EXPECT_THAT(refusal([&] { a.integers("m", 0); }),
              StartsWith("f.json: a.m[1]: must be a whole number, not a string"));
  EXPECT_THAT(refusal([&] { a.integers("n", 0); }), StartsWith("f.json: a.n[0]: must be a whole number"));
  EXPECT_THAT(a.integers("e", 0), IsEmpty());
  const JsonInput element(value.at("a"), "f.json", "rows[3]");
  EXPECT_EQ(element.path("l"), "rows[3].l");
}

TEST(JsonInput, HoldsNumbersToTheirRangeAndRefusesWhatIsNotFinite) {
  json value =
      json::parse(R"({"low": 0.5, "high": 2, "below": 0.499, "above": 2.001, "huge": 18446744073709551615})");
  value["nan"] = std::nan("");
  value["infinite"] = std::numeric_limits<double>::infinity();
  JsonInput input(value, "f.json", "a");
  EXPECT_EQ(input.number("low", 0.5, 2), 0.5);
  EXPECT_EQ(input.number("high", 0.5, 2), 2);
  EXPECT_EQ(refusal([&] { input.number("below", 0.5, 2); }),
            "f.json: a.below: 0.499 is out of range; write a number from 0.5 to 2");
  for (const std::string key : {"above", "huge", "nan", "infinite"}) {
    EXPECT_THAT(refusal([&] { input.number(key, 0.5, 2); }), HasSubstr("f.json: a." + key + ": ")) << key;
    EXPECT_THAT(refusal([&] { input.number_or(key, 1, 0.5, 2); }), HasSubstr(" is out of range; ")) << key;
  }
  for (const std::string key : {"nan", "infinite"})
    EXPECT_NE(refusal([&] { input.number(key, -HUGE_VAL, HUGE_VAL); }), "") << key;
}

TEST(JsonInput, RefusesUnknownFieldsAndProposesTheNearestAsked) {
  const json value = json::parse(R"({"o": {"microbatchs": 4, "seq": 1}})");
  JsonInput root(value, "f.json");
  JsonInput o = root.object("o");
  o.integer("seq", 0);
  o.integer_or("microbatches", 1, 1);
  EXPECT_EQ(refusal([&] { o.done(); }),
            "f.json: o.microbatchs: is not a known field here; did you mean \"microbatches\"?");
  const json strange = json::parse(R"({"zzzzzzzz": 4})");
  JsonInput other(strange, "f.json");
  other.integer_or("seq", 1, 1);
  EXPECT_EQ(refusal([&] { other.done(); }), "f.json: zzzzzzzz: is not a known field here; remove it");
}

// ---- defaults ----

class Defaults : public testing::Test {
 protected:
  const json value_ =
      json::parse(R"({"seq": 3, "tp": "four", "costs": {"a": -1}, "rows": [{"pp": 0, "seq": 5}, {}]})");
  JsonInput outer_{value_, "f.json"};
  JsonInput first_{value_.at("rows").at(0), "rows[0]", outer_};
  JsonInput second_{value_.at("rows").at(1), "rows[1]", outer_};
};

TEST_F(Defaults, StandInForWhatAnObjectLacks) {
  EXPECT_EQ(first_.integer("seq", 0), 5);
  EXPECT_EQ(second_.integer("seq", 0), 3);
  EXPECT_TRUE(second_.has("tp"));
  EXPECT_FALSE(second_.has("pp"));
  EXPECT_EQ(second_.integer_or("pp", 7, 1), 7);
}

TEST_F(Defaults, AreNamedWhereTheFieldIsTheirs) {
  EXPECT_THAT(refusal([&] { first_.integer("pp", 1); }), StartsWith("f.json: rows[0].pp: 0 is out of range"));
  EXPECT_THAT(refusal([&] { first_.integer("seq", 6); }), StartsWith("f.json: rows[0].seq: 5 is"));
  EXPECT_THAT(refusal([&] { second_.integer("seq", 6); }), StartsWith("f.json: seq: 3 is"));
  EXPECT_THAT(refusal([&] { second_.integer("tp", 1); }), StartsWith("f.json: tp: must be"));
  EXPECT_THAT(refusal([&] { second_.object("costs").number("a", 0, 1); }), StartsWith("f.json: costs.a: -1"));
  EXPECT_THAT(refusal([&] { second_.integer("cp", 1); }), StartsWith("f.json: rows[1].cp: is missing"));
}

TEST_F(Defaults, CountAsAskedWhenTheObjectIs) {
  first_.integer("seq", 0);
  EXPECT_THAT(refusal([&] { first_.done(); }), StartsWith("f.json: rows[0].pp: is not a known field"));
  first_.integer_or("pp", 0, 0);
  EXPECT_NO_THROW(first_.done());
  EXPECT_THAT(refusal([&] { outer_.done(); }), HasSubstr("are not known fields"));
  for (const char* key : {"tp", "costs", "rows"}) second_.ignore(key);
  EXPECT_NO_THROW(outer_.done());
}

// ---- nearest ----

TEST(Nearest, IsTheCandidateOfTheSmallestEditDistanceOrNone) {
  const std::vector<std::string> names{"1f1b", "1f1b-i", "stp", "zb-v"};
  EXPECT_EQ(nearest("stp", names), "stp");
  EXPECT_EQ(nearest("1f1bi", names), "1f1b");     // one away from two: the first
  EXPECT_EQ(nearest("1f1b_i", names), "1f1b-i");  // substitution
  EXPECT_EQ(nearest("zbv", names), "zb-v");       // insertion
  EXPECT_EQ(nearest("sttp", names), "stp");       // deletion
  EXPECT_EQ(nearest("gpipe", names), "");
  EXPECT_EQ(nearest("", names), "");
  EXPECT_EQ(nearest("stp", {}), "");
  // At most half the word may differ.
  EXPECT_EQ(nearest("abcd", {"abxy"}), "abxy");
  EXPECT_EQ(nearest("abcd", {"axyz"}), "");
  using Words = std::vector<std::string>;
  EXPECT_EQ(nearest_few("zbv", {"stp", "zb-v", "long-zbv-name", "1f1b"}, 2),
            (Words{"long-zbv-name", "zb-v"}));
  EXPECT_EQ(nearest_few("x", {"bcd", "b"}, 5), (Words{"b", "bcd"}));
}

}  // namespace
}  // namespace stp

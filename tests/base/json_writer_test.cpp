#include "tessera/base/json_writer.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tessera::detail {
namespace {

TEST(JsonWriterTest, WritesObjectsAndArraysWithCommasBetween) {
  JsonWriter json;
  json.begin_object().member("a", std::int64_t{1}).key("b").begin_array();
  json.value("x").value(true).begin_object().end_object().begin_array().end_array();
  json.end_array().member("c", false).end_object();
  EXPECT_EQ(json.text(), R"({"a":1,"b":["x",true,{},[]],"c":false})");
}

TEST(JsonWriterTest, WritesNumbersExactly) {
  JsonWriter json;
  json.value(std::vector<std::int64_t>{0, -1, std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::min()});
  EXPECT_EQ(json.text(), "[0,-1,9223372036854775807,-9223372036854775808]");
}

TEST(JsonWriterTest, WritesAnEmptyList) {
  JsonWriter json;
  json.begin_object().member("none", std::vector<std::int64_t>{}).end_object();
  EXPECT_EQ(json.text(), R"({"none":[]})");
}

TEST(JsonWriterTest, EscapesQuotesBackslashesAndControlCharacters) {
  JsonWriter json;
  json.value("a\"b\\c\n\t\x01 é");
  EXPECT_EQ(json.text(), R"("a\"b\\c\u000a\u0009\u0001 é")");
}

TEST(JsonWriterTest, EveryCharacterSurvives) {
  std::string text;
  for (char c = 0; c < 127; ++c) text += c;
  JsonWriter json;
  json.begin_object().member(text, text).end_object();
  EXPECT_EQ(nlohmann::json::parse(json.text())[text], text);
}

TEST(JsonWriterTest, ALiteralIsTextNotAFlag) {
  JsonWriter json;
  json.value("true");
  EXPECT_EQ(json.text(), R"("true")");
}

}  // namespace
}  // namespace tessera::detail

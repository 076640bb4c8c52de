#include <gtest/gtest.h>

#include <string>

#include "serve/api/errors.h"
#include "serve/api/requests.h"
#include "support/expect_error.h"

namespace tyto::api {
namespace {

GenerationOptions read(const std::string& body) {
  GenerationOptions options;
  read_generation(parse_body(body), options);
  return options;
}

// The field that is to blame, and what is said about it.
Refusal refusal(const std::string& body) {
  try {
    read(body);
  } catch (const RequestError& error) {
    return refusal_of(error);
  }
  return {.status = 200};
}

TEST(ApiFields, AreRead) {
  const GenerationOptions options = read(
      R"({"temperature":0.5,"top_k":7,"top_p":0.9,"min_p":0.1,"repeat_penalty":1.2,
          "frequency_penalty":-0.5,"presence_penalty":0.25,"repeat_last_n":32,"seed":42,
          "logit_bias":{"5":-100,"6":1.5},"max_tokens":3,"max_completion_tokens":9,
          "stop":["a","","b"],"ignore_eos":true,"n":4,"timeout":1.5,"stream":true,
          "stream_options":{"include_usage":true},"timings_per_token":true,"receipt":true,
          "profile":true})");
  EXPECT_FLOAT_EQ(options.sampling.temperature, 0.5f);
  EXPECT_EQ(options.sampling.top_k, 7u);
  EXPECT_FLOAT_EQ(options.sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(options.sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(options.sampling.repeat_penalty, 1.2f);
  EXPECT_FLOAT_EQ(options.sampling.frequency_penalty, -0.5f);
  EXPECT_FLOAT_EQ(options.sampling.presence_penalty, 0.25f);
  EXPECT_EQ(options.sampling.penalty_window, 32u);
  EXPECT_EQ(options.sampling.seed, 42u);
  EXPECT_EQ(options.sampling.logit_bias,
            (std::vector<std::pair<Token, float>>{{5, -100.f}, {6, 1.5f}}));
  EXPECT_EQ(options.max_tokens, 9u);
  EXPECT_EQ(options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(options.ignore_eos && options.stream && options.include_usage);
  EXPECT_TRUE(options.timings_per_token && options.receipt && options.profile);
  EXPECT_EQ(options.choices, 4u);
  EXPECT_EQ(options.timeout, std::chrono::milliseconds(1500));
}

TEST(ApiFields, OfSeveralBiasesOfOneTokenTheLastCounts) {
  std::string body = R"({"logit_bias":{)";
  for (int i = 0; i < 1000; ++i) body += R"("5":100,"7":1,"05":-100,)";
  const GenerationOptions options = read(body + R"("6":2,"7":3,"5":4}})");
  EXPECT_EQ(options.sampling.logit_bias,
            (std::vector<std::pair<Token, float>>{{5, 4.f}, {6, 2.f}, {7, 3.f}}));
}

TEST(ApiFields, UnknownAndNullOnesAreIgnored) {
  const GenerationOptions options =
      read(R"({"user":1,"metadata":[],"store":{},"temperature":null,"stop":null,"n":null})");
  EXPECT_FLOAT_EQ(options.sampling.temperature, SamplerOptions().temperature);
  EXPECT_EQ(options.choices, 1u);
  EXPECT_FALSE(options.max_tokens.has_value());
}

TEST(ApiFields, SeedsThatNobodyChoseDiffer) {
  EXPECT_NE(read("{}").sampling.seed, read("{}").sampling.seed);
  EXPECT_NE(read(R"({"seed":-1})").sampling.seed, read(R"({"seed":-1})").sampling.seed);
  EXPECT_EQ(read(R"({"seed":-2})").sampling.seed, read(R"({"seed":-2})").sampling.seed);
}

TEST(ApiFields, WithoutLimitIsMinusOne) {
  const GenerationOptions options = read(R"({"top_k":-1,"repeat_last_n":-1,"max_tokens":-1})");
  EXPECT_EQ(options.sampling.top_k, 0u);
  EXPECT_EQ(options.sampling.penalty_window, UINT32_MAX);
  EXPECT_FALSE(options.max_tokens.has_value());
}

struct Wrong {
  const char* body;
  const char* param;
};
class ApiFieldsWrong : public testing::TestWithParam<Wrong> {};

TEST_P(ApiFieldsWrong, IsRefusedByName) {
  const Refusal found = refusal(GetParam().body);
  EXPECT_EQ(found.status, 400) << GetParam().body;
  EXPECT_EQ(found.param, GetParam().param);
  EXPECT_NE(found.message.find(GetParam().param), std::string::npos) << found.message;
}

INSTANTIATE_TEST_SUITE_P(
    All, ApiFieldsWrong,
    testing::Values(
        Wrong{R"({"temperature":"hot"})", "temperature"},
        Wrong{R"({"temperature":-1})", "temperature"}, Wrong{R"({"top_p":1.5})", "top_p"},
        Wrong{R"({"top_k":1.5})", "top_k"}, Wrong{R"({"seed":"x"})", "seed"},
        Wrong{R"({"repetition_penalty":0})", "repetition_penalty"},
        Wrong{R"({"logit_bias":[1]})", "logit_bias"},
        Wrong{R"({"logit_bias":{"x":1}})", "logit_bias"},
        Wrong{R"({"logit_bias":{"1":101}})", "logit_bias"},
        Wrong{R"({"max_tokens":0})", "max_tokens"},
        Wrong{R"({"max_completion_tokens":"9"})", "max_completion_tokens"},
        Wrong{R"({"stop":[1]})", "stop"}, Wrong{R"({"n":0})", "n"}, Wrong{R"({"n":17})", "n"},
        Wrong{
            R"({"stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})",
            "stop"},
        Wrong{R"({"stream":1})", "stream"}, Wrong{R"({"stream_options":true})", "stream_options"},
        Wrong{R"({"stream_options":{"include_usage":1}})", "stream_options"},
        Wrong{R"({"response_format":"json"})", "response_format"},
        Wrong{R"({"response_format":{"type":"xml"}})", "response_format"},
        Wrong{R"({"response_format":{"type":"json_schema"}})", "response_format"},
        Wrong{R"({"response_format":{"type":"json_object"},"grammar":"root ::= \"a\""})",
              "grammar"},
        Wrong{R"({"grammar":7})", "grammar"}, Wrong{R"({"timeout":0})", "timeout"},
        Wrong{R"({"timeout_ms":1e12})", "timeout_ms"}, Wrong{R"({"receipt":"yes"})", "receipt"}));

TEST(ApiFields, FormatsOfAnswers) {
  using Kind = OutputFormat::Kind;
  EXPECT_EQ(read(R"({"response_format":{"type":"text"}})").format.kind, Kind::text);
  EXPECT_EQ(read(R"({"response_format":{"type":"json_object"}})").format.kind, Kind::json);
  const OutputFormat schema =
      read(R"({"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,
               "schema":{"type":"integer"}}}})")
          .format;
  EXPECT_EQ(schema.kind, Kind::json_schema);
  EXPECT_EQ(schema.schema->at("type").as_string(), "integer");
  EXPECT_EQ(read(R"({"json_schema":{}})").format.kind, Kind::json_schema);
  const OutputFormat grammar = read(R"({"grammar":"root ::= \"a\""})").format;
  EXPECT_EQ(grammar.kind, Kind::gbnf);
  EXPECT_EQ(grammar.grammar, "root ::= \"a\"");
  EXPECT_EQ(read(R"({"grammar":""})").format.kind, Kind::text);
}

TEST(ApiFields, TextsOrTokens) {
  const auto read_input = [](const std::string& text) {
    return texts_or_tokens_of(parse_body("{\"input\":" + text + "}").at("input"), 3);
  };
  EXPECT_EQ(read_input(R"("a")").front().text, "a");
  EXPECT_EQ(read_input(R"(["a","b"])").back().text, "b");
  EXPECT_EQ(read_input("[1,2]").front().tokens, (std::vector<Token>{1, 2}));
  EXPECT_EQ(read_input("[[1,2],[3]]").back().tokens, (std::vector<Token>{3}));
  const std::pair<const char*, const char*> kRefused[] = {
      {"[]", "input: is empty"},
      {"7", "found a number"},
      {"{}", "found an object"},
      {R"([1,"a"])", "input[0]: expected a string"},
      {"[-1]", "input[0]: -1 is outside"},
      {"[[1.5]]", "input[0][0]: expected an integer"},
      {R"(["a","b","c","d"])", "has 4 entries; at most 3"},
  };
  for (const auto& [wrong, words] : kRefused) EXPECT_ERROR(read_input(wrong), words) << wrong;
}

TEST(ApiFields, JsonErrorsSayWhereTheyAre) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{\"a\":1,}", "line 1, column 8"}, {"{\n  \"a\": 1\n  \"b\": 2\n}", "line 3, column 3"},
      {"{\"a\":", "line 1, column 6"},    {"{\"a\":\"\xff\"}", "line 1, column 7"},
      {"{\"a\":NaN}", "request: a: "},    {"{} {}", "line 1, column 4"},
  };
  for (const auto& [body, place] : kCases) {
    try {
      parse_body(body);
      ADD_FAILURE() << body;
    } catch (const RequestError& error) {
      const std::string message = refusal_of(error).message;
      EXPECT_NE(message.find(place), message.npos) << body << message;
      EXPECT_EQ(message.find("line "), message.rfind("line ")) << "once: " << message;
      EXPECT_EQ(refusal_of(error).param, "");
    }
  }
}

TEST(ApiFields, BodiesThatAreNoObject) {
  std::string deep(100, '[');
  deep.append(100, ']');
  for (const std::string& body : {std::string(), std::string("[]"), std::string("{"), deep,
                                  std::string("{\"a\":\"\xff\"}"), std::string("null")}) {
    try {
      parse_body(body);
      ADD_FAILURE() << body;
    } catch (const RequestError& error) {
      EXPECT_EQ(refusal_of(error).status, 400);
    }
  }
}

}  // namespace
}  // namespace tyto::api

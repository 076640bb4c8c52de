#include "evidence/receipt_json.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace tyto {
namespace {

TEST(ReceiptJson, HasTheFieldsThatTheDocumentationNames) {
  Receipt receipt;
  receipt.generated_tokens = 3;
  receipt.devices = {{.device = "vnpu", .is_virtual = true, .submissions = 4, .completions = 3}};
  receipt.loaded_code = {{"vnpu", "o_ffn", "elf", "abc"}};
  receipt.energy.reason = "no sensor";
  const std::string path = "receipt";
  const Json json = Json::parse(
      receipt_json(receipt, {.command = "tyto run -p 'caf\xc3\xa9 \xff'", .weights_hash = "123"}),
      path);
  EXPECT_EQ(json.at("schema").as_string(), "tyto-receipt-1");
  EXPECT_EQ(json.at("submissions").as_int(), 4);
  EXPECT_EQ(json.at("completions").as_int(), 3);
  EXPECT_TRUE(json.at("virtual").as_bool());
  EXPECT_EQ(json.at("energy").at("reason").as_string(), "no sensor");
  EXPECT_FALSE(json.at("energy").find("rail").has_value());
  EXPECT_EQ(json.at("hashes").at("weights").as_string(), "123");
  EXPECT_EQ(json.at("hashes").at("images").size(), 1u);
  EXPECT_EQ(json.at("timing").at("clock").as_string(), "simulation");
  EXPECT_FALSE(json.at("timing").find("decode_tok_s").has_value());
  for (const char* field : {"devices", "dispatches_per_token", "fallbacks", "plausibility", "model",
                            "command", "time", "id", "phases"})
    EXPECT_NO_THROW(json.at(field)) << field;
}

TEST(ReceiptJson, RefusedSpeedsAreNotInIt) {
  Receipt receipt;
  receipt.prompt_tokens = 4;
  receipt.generated_tokens = 11;
  receipt.prefill_seconds = receipt.decode_seconds = 1;
  EXPECT_NE(receipt_json(receipt, {}).find("decode_tok_s"), std::string::npos);
  receipt.plausibility.verdict = Verdict::refused;
  EXPECT_EQ(receipt_json(receipt, {}).find("tok_s"), std::string::npos);
}

}  // namespace
}  // namespace tyto

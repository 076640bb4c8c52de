#include "evidence/receipt_check.h"
#include "base/json_value.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "evidence/receipt_json.h"
#include "evidence/seal.h"
#include "support/expect_error.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

DeviceCounters npu(uint64_t submissions, uint64_t bytes) {
  return {.device = "npu",
          .submissions = submissions,
          .completions = submissions,
          .launches = submissions,
          .busy_ns = 1'000'000,
          .bytes = bytes,
          .flops = 1'000'000};
}

// 10 tokens in 0.5 s, then 20 in 1 s.
JsonValue receipt_of(uint64_t bytes_per_token = 1'000'000'000) {
  Receipt receipt;
  receipt.prompt_tokens = 10;
  receipt.generated_tokens = 21;
  receipt.prefill_seconds = 0.5;
  receipt.decode_seconds = 1;
  receipt.phases = {{npu(10, 1000)}, {npu(200, 20 * bytes_per_token)}};
  receipt.devices = receipt.phases.prefill;
  add(receipt.devices, receipt.phases.decode);
  ReceiptContext context{.version = "1", .time = "2026-01-31T12:00:00Z", .command = "tyto run"};
  context.limits = {
      {"npu", {.gb_s = 120, .gflops = 1000, .dispatch_us = 50, .source = "strix: x"}}};
  receipt.plausibility = judge(receipt, context.limits);
  return JsonValue(Json::parse(receipt_json(receipt, context), "r.json"));
}

// Members and indices, each behind a stroke.
JsonValue& at_path(JsonValue& json, const std::string& path) {
  JsonValue* at = &json;
  std::istringstream steps(path.substr(1));
  for (std::string step; std::getline(steps, step, '/');)
    at = at->is_array() ? &(*at)[std::stoul(step)] : &(*at)[step];
  return *at;
}

// As a forger does, who computes the hash again.
std::string sealed(JsonValue receipt) {
  receipt.erase("hash");
  seal(receipt, nullptr);
  return receipt.dump(2);
}

// "about: text" of what fails, or nothing.
std::string failures(const std::string& text) {
  std::string all;
  for (const Finding& each : check_receipt(text, "r.json").findings)
    if (each.state == Finding::State::fails) all += each.about + ": " + each.text + "\n";
  return all;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ReceiptCheck, AnHonestOneHolds) {
  const ReceiptCheck check = check_receipt(receipt_of().dump(2), "r.json");
  EXPECT_TRUE(check.holds()) << failures(receipt_of().dump(2));
  EXPECT_EQ(check.id.size(), 16u);
  EXPECT_EQ(check.findings[0].about, "hash");
  EXPECT_EQ(check.findings[1].state, Finding::State::open);  // not signed
}

TEST(ReceiptCheck, AChangedNumberShowsByTheHash) {
  JsonValue forged = receipt_of();
  forged["command"] = "tyto run -m another";
  EXPECT_TRUE(failures(forged.dump()).starts_with("hash: the contents have "));
  forged.erase("hash");
  EXPECT_TRUE(says(failures(forged.dump()), "hash: there is none"));
}

TEST(ReceiptCheck, WithTheHashComputedAnewTheNumbersStillHaveToAgree) {
  struct Forgery {
    const char* where;
    JsonValue value;
    const char* said;
  };
  const Forgery forgeries[] = {
      {"/devices/0/bytes", 7, "npu: 7 bytes in all, but 20000001000 in prefill and decode"},
      {"/devices/0/name", "h100", "h100: "},
      {"/submissions", 3, "submissions: says 3, is 210"},
      {"/completions", 0, "completions: says 0, is 210"},
      {"/dispatches_per_token", 1, "dispatches_per_token: says 1, is 10"},
      {"/timing/decode_tok_s", 43.84, "decode_tok_s: says 43.84, is 20"},
      {"/timing/prefill_tok_s", nullptr, "prefill_tok_s: says none, is 20"},
      {"/timing/decode_s", 0.0001, "npu: busy for 0.001000 s in a decode of 0.000100 s"},
      {"/generated_tokens", 400, "decoded_tokens: is neither"},
      {"/virtual", true, "is said both ways"},
      {"/devices/0/completions", 400, "npu: 400 completions of 210 submissions"},
      {"/on_host", {"embedding"}, "embedding left to the host, which did nothing"},
      {"/on_host", 7, "on_host"},
      {"/devices/0/flops", -1, "flops"},
      {"/devices/0/name", "n\x1b[2J", "not a device's name"},
      {"/timing/decode_s", "soon", "decode_s"},
      {"/plausibility/verdict", "true", "verdict"},
  };
  for (const Forgery& forgery : forgeries) {
    JsonValue receipt = receipt_of();
    at_path(receipt, forgery.where) = forgery.value;
    EXPECT_TRUE(says(failures(sealed(receipt)), forgery.said)) << forgery.where << "\n"
                                                               << failures(sealed(receipt));
  }
}

TEST(ReceiptCheck, TheVerdictIsWorkedOutAgain) {
  // 20 tok/s of 7 GB each is 140 GB/s.
  JsonValue forged = receipt_of(7'000'000'000);
  EXPECT_EQ(forged["plausibility"]["verdict"], "refused");
  EXPECT_EQ(failures(sealed(forged)), "");
  forged["plausibility"]["verdict"] = "plausible";
  forged["timing"]["prefill_tok_s"] = forged["timing"]["decode_tok_s"] = 20;
  EXPECT_TRUE(says(failures(sealed(forged)),
                   "says plausible, but npu decode: 20.00 tok/s of 7.00 GB each is 140 GB/s; the "
                   "memory has 120 GB/s"));
  // Limits that were raised, and limits that were taken away.
  JsonValue& limits = forged["plausibility"]["limits"];
  limits.elements()[0]["gb_s"] = 500;
  EXPECT_TRUE(says(failures(sealed(forged)), "the memory has 120 GB/s"));
  limits = JsonValue::array();
  EXPECT_FALSE(says(failures(sealed(forged)), "the memory has"));  // any machine's: 256 GB/s
  JsonValue faster = receipt_of(13'000'000'000);
  faster["plausibility"] = forged["plausibility"];
  faster["timing"] = forged["timing"];
  EXPECT_TRUE(says(failures(sealed(faster)), "the memory has 256 GB/s"));
}

TEST(ReceiptCheck, ADeviceOfWhichNothingIsKnownProvesNothing) {
  JsonValue forged = receipt_of();
  for (const char* where : {"/devices/0/name", "/phases/prefill/0/name", "/phases/decode/0/name"})
    at_path(forged, where) = "h100";
  EXPECT_TRUE(says(failures(sealed(forged)), "says plausible, but nothing could be compared"));
}

TEST(ReceiptCheck, WhatIsNoReceiptIsAnError) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"", "there is no text"},
      {"{}", "is not a receipt"},
      {"[]", "is not a receipt"},
      {R"({"schema":"tyto-receipt-9"})", "has schema tyto-receipt-9"},
      {R"({"schema":1})", "schema: expected a string"},
      {R"({"schema":"tyto-receipt-1","x":1e999})", "1e999 is not a number"},
      {R"({"schema":"tyto-receipt-1","id":"a","id":"b"})", "id: is there twice"},
  };
  for (const auto& [text, words] : kRefused)
    EXPECT_ERROR(check_receipt(text, "r.json"), words) << text;
}

}  // namespace
}  // namespace tyto

// The reports of a diagnosis made by hand.
#include "report/diagnosis.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"

namespace tyto {
namespace {

StepError step(Phase phase, int32_t layer, const std::string& label, double cosine) {
  StepError result;
  result.phase = phase;
  result.layer = layer;
  result.step = label;
  result.dispatch = label;
  result.device = "vnpu";
  result.rows = 3;
  result.cosine = result.worst_row_cosine = cosine;
  return result;
}

Diagnosis diagnosis() {
  Diagnosis result;
  result.model = "a <model>";
  result.device = "vnpu";
  result.layers = 2;
  result.prompt_tokens = 3;
  result.decode_tokens = 1;
  result.steps = {step(Phase::prefill, 0, "q", 0.9999), step(Phase::prefill, 0, "ffn_residual", 1),
                  step(Phase::prefill, 1, "q", 0.95), step(Phase::prefill, 1, "ffn_residual", 0.5),
                  step(Phase::decode, 1, "ffn_residual", 0.99999)};
  result.hidden = {{Phase::decode, "o_ffn", "vnpu", 2, {"gate", "up"}}};
  return result;
}

TEST(Diagnosis, NamesTheFirstStepPastTheToleranceAndTheLastGoodOne) {
  const Diagnosis of = diagnosis();
  ASSERT_NE(first_past(of), nullptr);
  EXPECT_EQ(name(*first_past(of)), "L01.q in prefill");
  EXPECT_NE(diagnosis_verdict(of).find("L01.q in prefill, cosine 0.9500000"), std::string::npos);
  EXPECT_NE(diagnosis_verdict(of).find("before it: L00.ffn_residual"), std::string::npos);
  Diagnosis lenient = of;
  lenient.tolerance = 0.4;
  EXPECT_EQ(first_past(lenient), nullptr);
  EXPECT_NE(diagnosis_verdict(lenient).find("within tolerance"), std::string::npos);
  // Exactly at the tolerance is within; not a number is not.
  lenient.tolerance = 0.5;
  EXPECT_EQ(first_past(lenient), nullptr);
  lenient.steps[0].cosine = NAN;
  ASSERT_NE(first_past(lenient), nullptr);
  EXPECT_NE(diagnosis_verdict(lenient).find("nothing was seen before"), std::string::npos);
}

TEST(Diagnosis, ResidualsAreNumbersOrHidden) {
  const auto prefill = residual_cosines(diagnosis(), Phase::prefill);
  ASSERT_EQ(prefill.size(), 2u);
  EXPECT_EQ(prefill[1], 0.5);
  EXPECT_FALSE(residual_cosines(diagnosis(), Phase::decode)[0]);
  const Json json = Json::parse(diagnosis_json(diagnosis()), "diagnosis");
  EXPECT_EQ(json.at("verdict").as_string(), "fail");
  EXPECT_EQ(json.at("first_past_tolerance").at("layer").as_int(), 1);
  EXPECT_EQ(json.at("steps").size(), 5u);
  json.at("residual_cosine").at("decode").for_each_element([](size_t layer, const Json& value) {
    EXPECT_EQ(value.is(Json::Type::null), layer == 0);
  });
}

TEST(Diagnosis, AProblemIsAFailureWhateverTheNumbersSay) {
  Diagnosis of = diagnosis();
  of.tolerance = -1;
  EXPECT_EQ(Json::parse(diagnosis_json(of), "d").at("verdict").as_string(), "pass");
  of.problem = "vnpu completed no work in prefill";
  EXPECT_EQ(Json::parse(diagnosis_json(of), "d").at("verdict").as_string(), "fail");
  EXPECT_NE(diagnosis_verdict(of).find("completed no work"), std::string::npos);
}

TEST(Diagnosis, TablesMarkWhatIsPastAndListWhatIsHidden) {
  std::string text;
  for (const Table& table : diagnosis_tables(diagnosis())) text += to_text(table, {});
  EXPECT_NE(text.find("5e-02!"), std::string::npos) << text;
  EXPECT_NE(text.find("gate, up"), std::string::npos) << text;
  EXPECT_NE(text.find("hidden"), std::string::npos) << text;
}

TEST(Diagnosis, ThePageEscapesNamesAndMarksCells) {
  const std::string page = diagnosis_html(diagnosis());
  EXPECT_EQ(page.find("<model>"), std::string::npos);
  EXPECT_NE(page.find("a &lt;model&gt;"), std::string::npos);
  EXPECT_NE(page.find("class=\"h6 past\""), std::string::npos);  // 0.5
  EXPECT_NE(page.find("class=\"h5 past\""), std::string::npos);  // 0.95
  EXPECT_NE(page.find("class=\"hidden\""), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
}

// 1e-05 on the page is one colour, whether it is a little more or a little less.
TEST(Diagnosis, NumbersThatReadTheSameHaveOneColour) {
  Diagnosis off = diagnosis();
  off.steps[0].cosine = 1 - 1.4e-5;
  off.steps[1].cosine = 1 - 0.96e-5;
  const std::string page = diagnosis_html(off);
  for (const char* other : {"h0", "h2", "h3"})
    EXPECT_EQ(page.find(std::string("<td class=\"") + other + "\" title=\"" + name(off.steps[0])),
              std::string::npos);
  EXPECT_NE(page.find("<td class=\"h1\" title=\"" + name(off.steps[0])), std::string::npos) << page;
  EXPECT_NE(page.find("<td class=\"h1\" title=\"" + name(off.steps[1])), std::string::npos) << page;
}

}  // namespace
}  // namespace tyto

// The gate between two greedy continuations, and the file they are kept in.
#include "check/diagnose.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

constexpr uint32_t kVocab = 100;

// At every position the chosen token is best, then those of `others` in order, one logit apart.
Continuation side(const std::vector<Token>& generated, const std::vector<Token>& others) {
  Continuation result;
  result.text = "a prompt";
  result.prompt = {1, 2, 3};
  result.generated = generated;
  for (const Token token : generated) {
    std::vector<Candidate> top = {{token, 50}};
    for (const Token other : others)
      if (other != token) top.push_back({other, 50 - static_cast<float>(top.size())});
    result.top.push_back(top);
  }
  return result;
}

const std::vector<Token> kOthers = {10, 11, 12, 13, 14, 15, 16, 17, 18};

TEST(Gate, EqualTokensPass) {
  const GateResult result =
      compare_greedy(side({10, 11, 12}, kOthers), side({10, 11, 12}, kOthers), {3, 5});
  EXPECT_TRUE(result.passed);
  EXPECT_EQ(result.compared, 3u);
  EXPECT_FALSE(result.divergence);
}

TEST(Gate, ADifferenceAmongTheBestOfBothSidesPassesAndEndsTheComparison) {
  // After the difference the contexts are no longer the same: the last token says nothing.
  const GateResult result =
      compare_greedy(side({10, 11, 80}, kOthers), side({10, 12, 90}, kOthers), {3, 5});
  EXPECT_TRUE(result.passed);
  EXPECT_EQ(result.divergence, 1u);
  EXPECT_EQ(result.compared, 2u);
  EXPECT_EQ(result.ours, 11);
  EXPECT_EQ(result.theirs, 12);
  EXPECT_EQ(result.rank_of_ours, 3u);    // theirs: 12, 10, 11
  EXPECT_EQ(result.rank_of_theirs, 3u);  // ours: 11, 10, 12
}

TEST(Gate, BeyondTheBestOfEitherSideFails) {
  // 16 is their choice and the seventh here; 11 is second there. And the other way round.
  const Continuation near = side({11}, kOthers);
  const Continuation far = side({16}, {11, 12, 13, 14});
  const GateResult here = compare_greedy(near, far, {1, 5});
  EXPECT_FALSE(here.passed);
  EXPECT_EQ(here.rank_of_ours, 2u);
  EXPECT_EQ(here.rank_of_theirs, 7u);
  EXPECT_NE(here.reason.find("rank 7"), std::string::npos) << here.reason;
  const GateResult there = compare_greedy(far, near, {1, 5});
  EXPECT_FALSE(there.passed);
  EXPECT_EQ(there.rank_of_ours, 7u);
  EXPECT_TRUE(compare_greedy(near, far, {1, 7}).passed);
  EXPECT_FALSE(compare_greedy(near, far, {1, 6}).passed);
}

TEST(Gate, ATokenThatIsNotListedFailsWhateverK) {
  const GateResult result = compare_greedy(side({11}, kOthers), side({70}, kOthers), {1, 90});
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.rank_of_theirs, 0u);
  EXPECT_NE(result.reason.find("beyond the best"), std::string::npos) << result.reason;
}

TEST(Gate, TiesShareTheirRank) {
  const std::vector<Candidate> tied = {{1, 9}, {2, 8}, {3, 7}, {4, 7}, {5, 6}, {6, 6}, {7, 6}};
  EXPECT_EQ(rank_of(1, tied), 1u);
  EXPECT_EQ(rank_of(3, tied), 3u);
  EXPECT_EQ(rank_of(4, tied), 3u);
  EXPECT_EQ(rank_of(7, tied), 5u);  // the seventh in the list, but only four are better
  EXPECT_EQ(rank_of(8, tied), 0u);
  Continuation ours = side({1}, {});
  ours.top = {tied};
  Continuation theirs = side({7}, {1});
  EXPECT_TRUE(compare_greedy(ours, theirs, {1, 5}).passed);
  EXPECT_FALSE(compare_greedy(ours, theirs, {1, 4}).passed);
}

TEST(Gate, NothingToCompareAndUnequalLengthsFail) {
  const Continuation empty = side({}, {});
  EXPECT_FALSE(compare_greedy(empty, empty, {32, 5}).passed);
  const GateResult shorter =
      compare_greedy(side({10, 11}, kOthers), side({10, 11, 12}, kOthers), {32, 5});
  EXPECT_FALSE(shorter.passed);
  EXPECT_NE(shorter.reason.find("ended after 2"), std::string::npos) << shorter.reason;
  // What lies beyond the tokens that are asked for does not matter.
  EXPECT_TRUE(compare_greedy(side({10, 11}, kOthers), side({10, 11, 12}, kOthers), {2, 5}).passed);
}

TEST(TopCandidates, BestFirstAndTiesWithTheLastAreKept) {
  const std::vector<float> logits = {1, 5, 3, 5, 3, 3, 0};
  EXPECT_EQ(top_candidates(logits, 1), (std::vector<Candidate>{{1, 5}, {3, 5}}));
  EXPECT_EQ(top_candidates(logits, 3),
            (std::vector<Candidate>{{1, 5}, {3, 5}, {2, 3}, {4, 3}, {5, 3}}));
  EXPECT_EQ(top_candidates(logits, 50).size(), logits.size());
  const std::vector<float> flat(1000, 0.0f);
  EXPECT_LT(top_candidates(flat, 5).size(), 100u);
}

TEST(TopCandidates, WhatIsNotFiniteIsRefused) {
  for (const float bad : {NAN, INFINITY, -INFINITY})
    EXPECT_ERROR(top_candidates(std::vector<float>{1, bad, 2}, 2), "logits: are not finite");
}

class TranscriptFile : public testing::Test {
 protected:
  Transcript transcript_{.engine = "an engine",
                         .model = "a model",
                         .max_tokens = 4,
                         .k = 5,
                         .continuations = {side({10, 11}, kOthers), side({12}, kOthers)}};

  static Transcript read(const std::string& text) {
    return transcript_from_json(text, "f.json", kVocab);
  }
  // One line that names the file.
  void refuses(std::string text, const std::string& part) {
    try {
      read(text);
      ADD_FAILURE() << "was read: " << part;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("f.json"), std::string::npos) << what;
      EXPECT_NE(what.find(part), std::string::npos) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  }
  std::string with(const std::string& from, const std::string& to) const {
    std::string text = transcript_json(transcript_);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
};

TEST_F(TranscriptFile, ReadsWhatWasWritten) {
  EXPECT_EQ(read(transcript_json(transcript_)), transcript_);
}

TEST_F(TranscriptFile, OtherVersionsAndGarbageAreRefusedInOneLine) {
  refuses(with("tyto-transcript-1", "tyto-transcript-2"), "tyto-transcript-2");
  refuses("", "");
  refuses("[]", "not a transcript");
  refuses("{\"schema\": 3}", "");
  refuses("not json at all \n at all", "");
  refuses(transcript_json(transcript_).substr(0, 90), "");
  refuses(with("\"generated\":[10,11]", "\"generated\":[10,100]"), "generated");
  refuses(with("\"generated\":[10,11]", "\"generated\":[10]"), "top");
  refuses(with("\"generated\":[10,11]", "\"generated\":[10,12]"), "not the best");
  refuses(with("\"prompt\":[1,2,3]", "\"prompt\":[]"), "prompt");
  refuses(with("\"prompt\":[1,2,3]", "\"prompt\":[1,-2,3]"), "prompt");
  refuses(with("\"max_tokens\":4", "\"max_tokens\":1"), "max_tokens");
  refuses(with("\"k\":5", "\"k\":50"), "top");
  refuses(with("\"k\":5", "\"k\":0"), "k");
  refuses(with("[11,49.0]", "[11,51.0]"), "best first");
  refuses(with("[11,49.0]", "[10,49.0]"), "twice");
  refuses(with("[11,49.0]", "[11,1e300]"), "finite");
  refuses(with("[11,49.0]", "[11]"), "[token, logit]");
}

}  // namespace
}  // namespace tyto

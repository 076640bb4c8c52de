// One model, step by step, without a thread: who gets how much of a step.
#include "serve/served_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model/synth.h"
#include "serve/engine_thread.h"
#include "serve/metrics.h"
#include "unit/model/model_fixtures.h"

namespace tyto {
namespace {

using namespace std::chrono_literals;

struct Embedded {
  std::vector<std::vector<float>> values;
  std::optional<Error> error;
};

class ServedModels : public testing::Test {
 protected:
  ServedModels() {
    ModelToServe& served = options.models.emplace_back();
    served.name = "tiny";
    served.engine.threads = 1;
    served.engine.pipeline.forward.sequences = 4;
    options.receipt_context = [](Engine&) { return ReceiptContext{}; };
    serve("tiny");
  }

  // A context of 512, in pages of 256.
  void serve(const std::string& shape) {
    model_.reset();
    const std::filesystem::path file = folder / (shape + ".gguf");
    if (!std::filesystem::exists(file)) synthesize(shape_by_name(shape), "q8_0", 1, file);
    options.models.front().engine.model = file.string();
  }
  ServedModel& model() {
    if (!model_) model_ = std::make_unique<ServedModel>(options.models.front(), together);
    return *model_;
  }
  // Its tokens are counted.
  void begin_stream(uint32_t length = 260) {
    const auto completion = std::make_shared<OpenCompletion>();
    completion->ticket = 1;
    completion->places.take(together, 1);
    completion->asked.request.prompt = {1, 2, 3};
    completion->asked.request.max_tokens = length;
    completion->asked.request.ignore_eos = true;
    completion->events = {.on_token = [this](const TokenEvent&) { return ++tokens > 0; },
                          .on_done = [](const ChoiceEnd&) {}};
    model().begin(completion);
  }
  std::shared_ptr<std::optional<Embedded>> begin_embedding(
      size_t inputs, size_t length,
      std::optional<std::chrono::steady_clock::time_point> deadline = {}) {
    auto result = std::make_shared<std::optional<Embedded>>();
    EmbeddingJob job{
        .ticket = 2,
        .inputs = std::vector(inputs, std::vector<Token>(length, 7)),
        .done =
            [result](std::vector<std::vector<float>> values, std::optional<Error> error) {
              ASSERT_FALSE(*result);
              result->emplace(Embedded{std::move(values), std::move(error)});
            },
        .deadline = deadline};
    job.places.take(together, 1);
    model().begin(std::move(job));
    return result;
  }

  const test::Scratch folder;
  EngineThreadOptions options;
  ServeMetrics metrics;
  ReceiptStore receipts{16};
  uint32_t ended = 0;
  ServedTogether together{options, metrics, receipts, [] {}, [this] { ++ended; }};
  uint32_t tokens = 0;

 private:
  std::unique_ptr<ServedModel> model_;
};

TEST_F(ServedModels, AStreamGetsATokenBetweenAnyTwoPassesOfAnEmbedding) {
  begin_stream();
  while (tokens < 3) model().step();
  const auto beside = begin_embedding(2, 100);  // fewer rows than the stream has tokens
  uint32_t passes = 0;
  for (; !*beside; ++passes) {
    const uint32_t before = tokens;
    model().step();
    ASSERT_EQ(tokens, before + 1) << passes;
  }
  EXPECT_GE(passes, 2u);
  ASSERT_FALSE((*beside)->error);
  // The same as of one that has the model for itself.
  model().cancel(1);
  model().step();
  EXPECT_TRUE(model().is_idle());
  const auto alone = begin_embedding(1, 100);
  while (!*alone) model().step();
  EXPECT_EQ((*alone)->values[0], (*beside)->values[0]);
  EXPECT_EQ((*alone)->values[0], (*beside)->values[1]);
  EXPECT_EQ(ended, 3u);
}

// Such a request leaves no receipt, and so nothing takes its recording.
TEST_F(ServedModels, ARequestThatEndsBeforeItRunsLeavesNoRecording) {
  for (const bool expires : {true, false}) {
    const auto completion = std::make_shared<OpenCompletion>();
    completion->ticket = 7;
    completion->places.take(together, 1);
    completion->asked.profile = true;
    completion->asked.request.prompt = {1, 2, 3};
    if (expires) completion->asked.deadline = std::chrono::steady_clock::now();
    completion->events = {.on_token = [](const TokenEvent&) { return true; },
                          .on_done = [](const ChoiceEnd&) {}};
    model().begin(completion);
    if (expires)
      model().expire(std::chrono::steady_clock::now());
    else
      model().cancel(7);
    model().step();
    ASSERT_TRUE(model().is_idle());
    model().unload();
    begin_stream();
    model().cancel(1);
    model().step();
  }
  EXPECT_EQ(ended, 4u);
}

TEST_F(ServedModels, AnEmbeddingEndsBetweenItsPasses) {
  const auto soon = std::chrono::steady_clock::now() + 1h;
  begin_stream();
  const auto expired = begin_embedding(1, 480, soon);
  model().step();
  ASSERT_FALSE(*expired);
  model().expire(soon - 1s);
  EXPECT_FALSE(*expired);
  model().expire(soon);
  ASSERT_TRUE(*expired);
  EXPECT_EQ((*expired)->error->code, ErrorCode::deadline);

  const auto gone = begin_embedding(1, 480);
  model().step();
  model().cancel(2);
  ASSERT_TRUE(*gone);
  EXPECT_TRUE((*gone)->error);

  const auto drained = begin_embedding(64, 480);
  model().step();
  model().cancel_all();
  ASSERT_TRUE(*drained);
  EXPECT_EQ((*drained)->error->code, ErrorCode::busy);
  while (!model().is_idle()) model().step();
  const ModelStatus status = model().status();
  EXPECT_EQ(status.kv_pages_in_use, status.prefix_pages);
}

// Whatever it may still grow to: a cache often holds less than one whole context.
TEST_F(ServedModels, AStreamGoesOnWhileItFitsBesideAnEmbedding) {
  options.models.front().engine.pipeline.forward.sequences = 1;  // three pages
  serve("tiny");
  begin_stream();
  while (tokens < 3) model().step();
  const auto made = begin_embedding(1, 130);  // fewer rows than the stream has tokens
  while (!*made) {
    const uint32_t before = tokens;
    model().step();
    ASSERT_EQ(tokens, before + 1);
  }
  EXPECT_FALSE((*made)->error);
  while (!model().is_idle()) model().step();
  EXPECT_EQ(tokens, 260u);
}

// Three pages: the stream has one or two of them at first, and both times two at its end.
TEST_F(ServedModels, AStreamDoesNotStandStillForAnEmbeddingThatDoesNotFit) {
  options.models.front().engine.pipeline.forward.sequences = 1;
  for (const uint32_t first : {3u, 260u}) {
    SCOPED_TRACE(first);
    serve("tiny");
    tokens = 0;
    begin_stream(400);
    while (tokens < first) model().step();
    const auto made = begin_embedding(first == 3 ? 16 : 1, 480);
    while (tokens < 400) {
      const uint32_t before = tokens;
      model().step();
      ASSERT_EQ(tokens, before + 1);
      ASSERT_TRUE(first == 3 || !*made) << "it found room";
    }
    while (!*made) model().step();
    EXPECT_FALSE((*made)->error);
    EXPECT_EQ((*made)->values.front().size(), (*made)->values.back().size());
    EXPECT_FALSE((*made)->values.front().empty());
    EXPECT_TRUE(model().is_idle());
  }
}

// Where an embedding and an answer cannot have their pages at the same time, it has the model for
// itself, and no request is told that there is no room.
TEST_F(ServedModels, AnEmbeddingTakesNoPagesThatAnAnswerNeeds) {
  options.models.front().engine.pipeline.forward.sequences = 1;
  for (const char* shape : {"tiny", "tiny-gemma2"}) {
    SCOPED_TRACE(shape);
    serve(shape);
    tokens = 0;
    begin_stream();
    const auto made = begin_embedding(1, 260);
    while (!*made) model().step();
    EXPECT_FALSE((*made)->error);
    while (!model().is_idle()) model().step();
    EXPECT_EQ(tokens, 260u);
  }
}

TEST_F(ServedModels, AFlagThatDoesNotSuitAModelNamesIt) {
  options.models.front().engine.pipeline.forward.context = 100'000;
  try {
    model().load();
    ADD_FAILURE() << "it was made for 512 positions";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("tiny: -c 100000: ")) << error.what();
    EXPECT_EQ(error.code, ErrorCode::usage);
    EXPECT_NE(error.hint, "");
    EXPECT_EQ(model().status().failure, error.what());
  }
}

TEST(ThrownError, EveryKindBecomesAnError) {
  const auto of = [](const auto& thrown) {
    try {
      throw thrown;
    } catch (...) {
      return thrown_error("here");
    }
  };
  EXPECT_EQ(of(Error(ErrorCode::input, "there", "a fact")).code, ErrorCode::input);
  EXPECT_STREQ(of(std::runtime_error("a fact")).what(), "here: a fact");
  EXPECT_EQ(of(7).code, ErrorCode::device);
  // What others give back is worth another try.
  EXPECT_TRUE(may_pass(of(std::bad_alloc())));
  EXPECT_TRUE(may_pass(Error(ErrorCode::input, "m.gguf", "cannot map: Cannot allocate memory")));
  EXPECT_TRUE(may_pass(Error(ErrorCode::input, "m.gguf", "cannot open: Too many open files")));
  EXPECT_FALSE(may_pass(Error(ErrorCode::input, "m.gguf", "cannot open: No such file")));
  EXPECT_FALSE(may_pass(of(7)));
}

}  // namespace
}  // namespace tyto

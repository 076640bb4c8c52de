#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/spelling.h"
#include "check/transcript.h"
#include "check/verify_report.h"
#include "cli/auto_device.h"
#include "cli/combination.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/provenance.h"
#include "engine/engine.h"
#include "model/description.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"
#include "tensor/compare.h"
#include "text/chat_template.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxTranscriptBytes = uint64_t{256} << 20;
constexpr uint32_t kWrittenCandidates = 10;  // beyond the gate's, so that a rank can be told

// Short and varied. tools/hf_reference.py has the same ones, in the same order.
constexpr std::array<const char*, 8> kGatePrompts = {
    "Tell me a story about a fox who finds a lamp.",
    "What is 3 plus 4?",
    "The owl looked down at the river and",
    "Name three things that are blue.",
    "Why does the moon change its shape?",
    "Write a short poem about rain.",
    "One, two, three, four,",
    "Who lives in the old house on the hill?",
};
constexpr size_t kQuickPrompts = 2;

struct VerifyFlags {
  EngineFlags engine;
  GateOptions gate;
  std::string against;  // empty: reference, or nothing when only writing
  bool full = false;
  std::string prompt;  // beside ours; empty: none
  JsonFlag json;
  std::string write;
  bool force = false;

  bool is_only_writing() const { return !write.empty() && against.empty(); }
  bool uses_file() const { return !against.empty() && against != "reference"; }
};

// Through the model's chat template, where it has one.
Continuation prompt_of(const std::string& text, const Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  Continuation result;
  result.text = text;
  if (tokenizer.vocabulary().chat_template.empty()) {
    result.prompt = tokenizer.encode(text);
    return result;
  }
  const ChatTemplate chat_template =
      choose_chat_template(tokenizer.vocabulary(), "", engine.model().path.string());
  result.prompt = encode_chat(tokenizer, chat_template, {{"user", text}});
  return result;
}

std::vector<Continuation> own_prompts(const VerifyFlags& flags, const Engine& engine) {
  std::vector<Continuation> result;
  for (size_t i = 0; i < (flags.full ? kGatePrompts.size() : kQuickPrompts); ++i)
    result.push_back(prompt_of(kGatePrompts[i], engine));
  if (!flags.prompt.empty()) result.push_back(prompt_of(flags.prompt, engine));
  return result;
}

// The other engine's file must be able to answer what the gate asks.
Transcript read_transcript(const VerifyFlags& flags, const Engine& engine) {
  Transcript file = transcript_from_json(read_text_file(flags.against, kMaxTranscriptBytes),
                                         flags.against, engine.model().config.vocab);
  const auto refuse = [&](const std::string& what, const std::string& next) {
    throw Error(ErrorCode::input, flags.against, what, next);
  };
  if (file.k < flags.gate.k)
    refuse(fmt::format("has the best {}, the gate asks for {}", file.k, flags.gate.k),
           fmt::format("write it again with more, or give -k {}", file.k));
  if (file.max_tokens < flags.gate.tokens)
    refuse(fmt::format("has {} tokens, the gate asks for {}", file.max_tokens, flags.gate.tokens),
           fmt::format("write it again with more, or give -n {}", file.max_tokens));
  if (flags.full && file.continuations.size() < kGatePrompts.size())
    refuse(fmt::format("has {} prompts, --full wants {}", file.continuations.size(),
                       kGatePrompts.size()),
           "write it again with all prompts");
  if (!flags.full && file.continuations.size() > kQuickPrompts)
    file.continuations.resize(kQuickPrompts);
  for (const Continuation& from : file.continuations)
    if (from.generated.size() < flags.gate.tokens &&
        !engine.tokenizer().is_eos(from.generated.back()))
      refuse(fmt::format("a continuation ends after {} tokens without an end-of-text token",
                         from.generated.size()),
             "write it again");
  return file;
}

double lowest_cosine(const AllLogits& ours, const AllLogits& theirs, uint32_t count) {
  double lowest = 1;
  for (size_t i = 0; i < count; ++i) lowest = std::min(lowest, compare(ours[i], theirs[i]).cosine);
  return lowest;
}

class Verifier {
 public:
  explicit Verifier(const VerifyFlags& flags)
      : flags_(flags),
        json_(flags.json.path(), kVerifyFile, flags.force),
        transcript_(flags.write, kTranscriptFile, flags.force),
        engine_(engine_options(flags.engine), progress_bar()) {}

  void run() {
    report_.gate = flags_.gate;
    report_.against = "the f32 reference";
    std::vector<Continuation> prompts;
    if (flags_.uses_file()) {
      Transcript file = read_transcript(flags_, engine_);
      report_.against = fmt::format("{} ({})", file.engine, flags_.against);
      prompts = std::move(file.continuations);
    } else {
      prompts = own_prompts(flags_, engine_);
    }
    prompts_ = prompts.size();
    for (Continuation& prompt : prompts) {
      compare_one(std::move(prompt));
      if (!report_.problem.empty()) break;
    }
    engine_.check_required(report_.receipt.phases);
    finish();
  }

 private:
  // `other` has the prompt and, from a file, the other engine's continuation.
  void compare_one(Continuation other) {
    VerifiedPrompt result;
    AllLogits our_logits, their_logits;
    const bool uses_reference = !flags_.uses_file() && !flags_.is_only_writing();
    const GreedyRequest request{other.prompt, flags_.gate.tokens,
                                std::max(kWrittenCandidates, flags_.gate.k)};
    try {
      result.ours = greedy(engine_.generator_from_nothing(), request, report_.receipt,
                           uses_reference ? &our_logits : nullptr, progress_of_prompt());
    } catch (const Error& error) {
      if (error.code != ErrorCode::device) throw;
      report_.problem = error.what();
      return;
    }
    result.ours.text = other.text;
    if (uses_reference) {
      const std::string text = other.text;
      other = greedy_reference(engine_.model(), engine_.tokenizer(), request, &their_logits,
                               progress_of_prompt());
      other.text = text;
    }
    if (flags_.is_only_writing()) {
      report_.prompts.push_back(std::move(result));
      return;
    }
    result.theirs = std::move(other);
    result.gate = compare_greedy(result.ours, result.theirs, flags_.gate);
    if (uses_reference)
      result.worst_cosine = lowest_cosine(our_logits, their_logits, result.gate.compared);
    report_.prompts.push_back(std::move(result));
  }

  Progress progress_of_prompt() const {
    return [bar = progress_bar(), number = report_.prompts.size() + 1, of = prompts_](
               std::string_view what, uint64_t done, uint64_t total) {
      if (bar) bar(fmt::format("prompt {} of {}: {}", number, of, what), done, total);
    };
  }

  void finish() {
    if (report_.problem.empty())
      report_.problem =
          why_not_executed(flags_.engine.prefill(), flags_.engine.decode(), report_.receipt)
              .value_or("");
    report_.combination = combination_of(engine_, flags_.engine);
    report_.context = receipt_context(engine_);
    if (transcript_.is_wanted()) write_own_side();
    if (flags_.is_only_writing()) return;
    // What a passed gate promises is this gate, with nothing broken on purpose.
    const GateOptions standard;
    const bool is_standard = flags_.gate.tokens >= standard.tokens && flags_.gate.k == standard.k &&
                             flags_.engine.setting("vnpu-fault", "").empty();
    if (is_standard)
      remember({report_.combination, has_passed(report_), report_.context.time, report_.against,
                static_cast<uint32_t>(report_.prompts.size())});
    report_.remembered = is_standard;
    show(is_standard);
  }

  void show(bool is_standard) {
    const Tokenizer& tokenizer = engine_.tokenizer();
    if (flags_.json.is_for_stdout()) {
      print(verify_json(report_, tokenizer));
    } else {
      print_coloured(to_text(verify_table(report_, tokenizer), stdout_style()));
      print_prose(verdict_line(report_) + "\n", has_passed(report_) ? Ink::green : Ink::red);
    }
    note(fmt::format(
        "prompts {} · generated {} · {}", counted(report_.receipt.prompt_tokens, "token"),
        counted(report_.receipt.generated_tokens, "token"), executed_line(report_.receipt)));
    if (!is_standard)
      note(
          "not remembered: only a run with the usual 32 tokens and k = 5, on a device without an "
          "injected fault, counts");
    if (json_.is_wanted()) json_.write(verify_json(report_, tokenizer));
    if (!has_passed(report_))
      throw Error(ErrorCode::device, "verify", verdict_line(report_),
                  "`tyto diagnose` with the same flags names the first step that is off");
  }

  void write_own_side() {
    if (!report_.problem.empty()) throw Error(ErrorCode::device, "verify --write", report_.problem);
    const Model& model = engine_.model();
    Transcript file{
        .engine = fmt::format("tyto {} on {}", TYTO_VERSION, device_names(report_.receipt.devices)),
        .model = describe(model).name,
        .max_tokens = flags_.gate.tokens,
        .k = std::max(kWrittenCandidates, flags_.gate.k)};
    for (const VerifiedPrompt& prompt : report_.prompts) file.continuations.push_back(prompt.ours);
    transcript_.write(transcript_json(file));
    note(executed_line(report_.receipt));
  }

  const VerifyFlags& flags_;
  OutputFile json_;
  OutputFile transcript_;
  Engine engine_;
  VerifyReport report_;
  size_t prompts_ = 0;
};

}  // namespace

void define_verify(CommandLine& command) {
  VerifyFlags& flags = command.values<VerifyFlags>();
  add_engine_flags(command, flags.engine);
  command.add({
      {"--against", &flags.against, "reference|FILE",
       "compare with Tyto's f32 reference, or with the transcript of another engine (default: "
       "reference)"},
      {"--full", &flags.full, "run 8 prompts instead of 2"},
      {"-p,--prompt", &flags.prompt, "TEXT", "run a prompt of your own, too"},
      {"-n,--tokens", &flags.gate.tokens, "N", "tokens to generate per prompt",
       Rules{.range = Range{1, 65536}, .shows_default = true}},
      {"-k", &flags.gate.k, "K",
       "where tokens first differ, each must be among the other side's K likeliest",
       Rules{.range = Range{1, 1000}, .shows_default = true}},
      json_flag(flags.json),
      {"--write", &flags.write, "FILE",
       "write this device's transcript, to compare on another machine; alone it compares nothing"},
      force_flag(flags.force, {"--json", "--write"}),
  });
  command.footer =
      "The device and the reference continue the same prompts at temperature 0. The exit code is 0 "
      "if the answers agree, else 1.\n\n"
      "At the first token that differs, each side's token must be among the other side's "
      "likeliest. "
      "The result is kept, and `tyto run` says when a device was not verified or failed.\n\n"
      "Examples:\n"
      "  tyto verify\n"
      "  tyto verify --device vnpu --fusion op\n"
      "  tyto verify -m ./Llama-3.2-1B --full --json result.json\n"
      "  tyto verify -m ./Llama-3.2-1B --against hf.json  (of tools/hf_reference.py)\n"
      "  tyto verify --device npu --write npu.json        (for another machine)";
  command.first = {"--model",  "--device", "--fusion",  "--kv-type", "--threads", "--full",
                   "--tokens", "-k",       "--against", "--json",    "--write",   "--force"};
  command.run = [&flags] {
    if (flags.is_only_writing() && flags.json.is_given())
      throw Error(ErrorCode::usage, "--json", "there is no result without a comparison",
                  "give --against too");
    if (flags.uses_file() && !flags.prompt.empty())
      throw Error(ErrorCode::usage, "--prompt", "has no effect: the prompts are those of the file");
    settle_device(flags.engine);
    Verifier(flags).run();
  };
}

}  // namespace tyto

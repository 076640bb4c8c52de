#include "base/error.h"
#include "base/spelling.h"
#include "check/combination.h"
#include "check/verify_report.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/provenance.h"
#include "engine/engine.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

struct VerifyFlags {
  EngineChoice engine;
  VerifyOrder order;
  JsonFlag json;
  std::string write;
  bool force = false;
};

void show(const VerifyReport& report, const VerifyFlags& flags, const Tokenizer& tokenizer) {
  if (flags.json.is_for_stdout()) {
    print(verify_json(report, tokenizer));
  } else {
    print_coloured(to_text(verify_table(report, tokenizer), stdout_style()));
    print_prose(verdict_line(report) + "\n", has_passed(report) ? Ink::green : Ink::red);
  }
  note(fmt::format("prompts {} · generated {} · {}", counted(report.receipt.prompt_tokens, "token"),
                   counted(report.receipt.generated_tokens, "token"),
                   executed_line(report.receipt)));
  if (!report.remembered)
    note(
        "not remembered: only a run with the usual 32 tokens and k = 5, on a device without an "
        "injected fault, counts");
}

void verify(const VerifyFlags& flags) {
  OutputFile json(flags.json.path(), kVerifyFile, flags.force);
  OutputFile transcript(flags.write, kTranscriptFile, flags.force);
  EngineOptions options = flags.engine.options;
  options.settings.emplace("first-dispatch", "check");  // a check does not trust the first dispatch
  Engine engine(options, progress_bar());
  VerifyReport report = run_gate(engine, flags.order, progress_bar());
  if (report.problem.empty())
    report.problem =
        why_not_executed(options.prefill(), options.device, report.receipt).value_or("");
  report.combination = combination_of(engine, options, progress_bar());
  report.context = receipt_context(engine);
  if (transcript.is_wanted()) {
    if (!report.problem.empty()) throw Error(ErrorCode::device, "verify --write", report.problem);
    transcript.write(transcript_json(own_transcript(report, engine)));
    note(executed_line(report.receipt));
  }
  if (!flags.order.compares) return;
  // What a passed gate promises is this gate, with nothing broken on purpose.
  const GateOptions standard;
  report.remembered = report.gate.tokens >= standard.tokens && report.gate.k == standard.k &&
                      !options.settings.contains("vnpu-fault");
  if (report.remembered)
    remember({report.combination, has_passed(report), report.context.time, report.against,
              static_cast<uint32_t>(report.prompts.size())});
  show(report, flags, engine.tokenizer());
  if (json.is_wanted()) json.write(verify_json(report, engine.tokenizer()));
  if (!has_passed(report))
    throw Error(ErrorCode::device, "verify", verdict_line(report),
                "`tyto diagnose` with the same flags names the first step that is off");
}

}  // namespace

void define_verify(CommandLine& command) {
  VerifyFlags& flags = command.values<VerifyFlags>();
  add_engine_flags(command, flags.engine);
  command.add({
      {"--against", &flags.order.against, "reference|FILE",
       "compare with Tyto's f32 reference, or with the transcript of another engine (default: "
       "reference)"},
      {"--full", &flags.order.full, "run 8 prompts instead of 2"},
      {"-p,--prompt", &flags.order.prompt, "TEXT", "run a prompt of your own, too"},
      {"-n,--tokens", &flags.order.gate.tokens, "N", "tokens to generate per prompt",
       Rules{.range = Range{1, 65536}, .shows_default = true}},
      {"-k", &flags.order.gate.k, "K",
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
  command.run = [&command, &flags] {
    VerifyOrder& order = flags.order;
    order.compares = flags.write.empty() || !order.against.empty();
    if (order.against == "reference") order.against.clear();
    if (!order.compares && flags.json.is_given())
      throw Error(ErrorCode::usage, "--json", "there is no result without a comparison",
                  "give --against too");
    if (!order.against.empty() && !order.prompt.empty())
      throw Error(ErrorCode::usage, "--prompt", "has no effect: the prompts are those of the file");
    settle_engine(command, flags.engine);
    verify(flags);
  };
}

}  // namespace tyto

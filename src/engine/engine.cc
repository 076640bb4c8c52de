#include "engine/engine.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxTemplateBytes = 1 << 20;

// Fails closed before anything runs: a device that is not there, or only virtual, cannot have done
// the work.
void check_can_require(const std::string& name, const std::vector<DeviceInfo>& devices) {
  if (name.empty()) return;
  for (const DeviceInfo& device : devices) {
    if (device.name != name) continue;
    if (!device.is_virtual) return;
    throw Error(ErrorCode::require, "--require " + name,
                "the device is virtual, its time modelled");
  }
  throw Error(ErrorCode::require, "--require " + name, "no such device is in use",
              "`tyto devices` lists what this machine has; choose one with --device");
}

}  // namespace

Engine::Engine(const EngineOptions& options, const Progress& progress)
    : require_(options.require),
      model_(open_model(find_model(options.model), Need::weights, progress)),
      pool_(options.threads) {
  if (model_.vocabulary) tokenizer_.emplace(*model_.vocabulary, model_.path.string());
  const DeviceEnv env{pool_, trace_, options.pipeline.fusion};
  devices_.push_back(open_device(options.device, env));
  if (options.device != "cpu") devices_.push_back(open_device("cpu", env));
  check_can_require(require_, devices());
  std::vector<Device*> in_order;
  for (const auto& device : devices_) in_order.push_back(device.get());
  pipeline_ = std::make_unique<Pipeline>(model_, in_order, options.pipeline, trace_);
  setup_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - opened_).count();
}

const Tokenizer& Engine::tokenizer() const {
  if (!tokenizer_)
    throw Error(ErrorCode::input, model_.path.string(), "has no tokenizer",
                "put tokenizer.json beside the weights, or use --tokens where a command takes it");
  return *tokenizer_;
}

std::vector<DeviceInfo> Engine::devices() const {
  std::vector<DeviceInfo> result;
  for (const auto& device : devices_) result.push_back(device->info());
  return result;
}

void Engine::check_required(const std::vector<DeviceCounters>& executed) const {
  if (require_.empty()) return;
  const bool ran = std::any_of(executed.begin(), executed.end(), [&](const DeviceCounters& device) {
    return device.device == require_ && !device.is_virtual && device.completions > 0;
  });
  if (!ran) throw Error(ErrorCode::require, "--require " + require_, "it completed no work");
}

ChatTemplate choose_chat_template(const Vocabulary& vocabulary, const std::string& choice,
                                  const std::string& model_name) {
  if (choice.empty()) {
    if (vocabulary.chat_template.empty())
      throw Error(ErrorCode::input, model_name, "has no chat template",
                  "name one with --chat-template, or give the prompt as it is with --raw");
    return ChatTemplate(vocabulary.chat_template, model_name + ": chat_template");
  }
  std::string known;
  for (const NamedTemplate& named : named_chat_templates()) {
    if (named.name == choice) return ChatTemplate(named.source, choice);
    known += (known.empty() ? "" : ", ") + std::string(named.name);
  }
  if (!std::filesystem::exists(choice))
    throw Error(ErrorCode::usage, "--chat-template " + choice, "neither a known name nor a file",
                "known names: " + known);
  return ChatTemplate(read_text_file(choice, kMaxTemplateBytes), choice);
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               const std::vector<ChatMessage>& messages) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto text_of = [&](Token token) { return token < 0 ? "" : tokenizer.token_bytes(token); };
  ChatOptions options;
  options.bos_token = text_of(vocabulary.bos);
  options.eos_token = vocabulary.eos.empty() ? "" : text_of(vocabulary.eos.front());
  const std::string text = chat_template.render(messages, options);
  // Most templates write the BOS themselves; it must not be there twice.
  const bool has_bos = !options.bos_token.empty() && text.starts_with(options.bos_token);
  return tokenizer.encode(text, {.add_bos = !has_bos, .parse_special = true});
}

}  // namespace tyto

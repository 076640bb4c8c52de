// Everything that is opened once: model, tokenizer, devices, pipeline. What run, chat, eval and the
// server share.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "engine/generate.h"
#include "llama/pipeline.h"
#include "model/adapters.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "trace/receipt.h"
#include "trace/trace.h"

namespace tyto {

struct EngineOptions {
  std::string model;  // a file, a folder or a name; empty: the model that ships with Tyto
  std::vector<AdapterChoice> adapters = {};
  std::string device = "cpu";  // where launches go first; the cpu takes what it cannot run
  std::string prefill_device;  // where those of prompts do; empty: there, too
  std::string device_choice;   // why it is that one, in words; empty: it was named
  std::string require;         // DEVICE[:phase] that must be real and do the work; empty: none
  unsigned threads = 0;        // 0: one per usable core
  // When given, these threads and no others: of an engine that runs in turns with this one.
  std::shared_ptr<ThreadPool> pool = {};
  DeviceSettings settings;  // for any of the devices
  PipelineOptions pipeline;

  const std::string& prefill() const { return prefill_device.empty() ? device : prefill_device; }
};

// Not movable: its parts refer to each other.
class Engine {
 public:
  explicit Engine(const EngineOptions& options, const Progress& progress = {});

  const Model& model() const { return model_; }
  const Tokenizer& tokenizer() const;  // throws when the model has no vocabulary
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  std::shared_ptr<const Tokenizer> shared_tokenizer() const { return tokenizer_; }
  Pipeline& pipeline() { return *pipeline_; }
  PrefixCache& prefixes() { return *prefixes_; }
  // For one request at a time; with what earlier ones have left in the caches, or without.
  Generator generator() { return {tokenizer(), *pipeline_, trace_, prefixes_.get()}; }
  Generator generator_from_nothing() { return {tokenizer(), *pipeline_, trace_}; }
  Trace& trace() { return trace_; }
  Fusion fusion() const { return pipeline_->forward().fusion(); }
  std::vector<DeviceInfo> devices() const;
  unsigned threads() const { return pool_->threads(); }
  std::shared_ptr<ThreadPool> pool() const { return pool_; }
  double setup_seconds() const { return setup_seconds_; }
  // Made when it is first asked for, which reads the whole model unless its hashes are kept.
  const ModelIdentity& identity(const Progress& progress = {});
  const std::vector<LoadedCode>& loaded_code() const { return trace_.loaded_code(); }

  std::vector<NamedLimits> limits() const;
  DeviceLimits measure_cpu_peak();  // takes about a second
  const Requirement& requirement() const { return require_; }
  const std::string& device_choice() const { return device_choice_; }
  // Throws a require Error unless the required device did the work (trace/receipt.h).
  void check_required(const PhaseCounters& executed) const;
  // Adds what the engine knows beyond the request: loaded code, and whether the speed can be true.
  void complete(Receipt& receipt) const;

 private:
  void open_devices(const EngineOptions& options, const Progress& progress);
  SideDevices sides(const EngineOptions& options) const;

  std::chrono::steady_clock::time_point opened_ = std::chrono::steady_clock::now();
  Requirement require_;
  std::string device_choice_;
  Trace trace_;
  Model model_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // shared with what makes prompts for a server
  std::shared_ptr<ThreadPool> pool_;            // with engines that run in turns with this one
  DeviceSettings settings_;
  std::vector<std::unique_ptr<Device>> devices_;  // the one for tokens first
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<PrefixCache> prefixes_;  // the pipeline's caches
  std::optional<ModelIdentity> identity_;
  double setup_seconds_ = 0;  // from construction to ready for the first token
};

// What the model asks for in its own settings, over ours.
SamplerOptions sampling_for(const Model& model, SamplerOptions ours);

// How a conversation becomes a prompt (text/chat_template.h). `choice` is a named template, a file,
// or empty for the model's own: of several that for tools where there are some. The model's further
// ones may be chosen by their names.
ChatTemplate choose_chat_template(const Vocabulary& vocabulary, const std::string& choice,
                                  const std::string& model_name, bool with_tools = false);
// Where one has to be chosen: "has the chat templates rag, tool_use, and none that is called
// default". Else empty.
std::string without_default_template(const Vocabulary& vocabulary);

}  // namespace tyto

// Tyto inside another program: a model on a device, its answers, and what did the work. The only
// header of the installed library (docs/library.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tyto::library {

struct ModelOptions {
  std::string model = {};          // a file, a folder, or a name that `tyto models` lists
  std::string device = "cpu";      // as --device, but not "auto"
  std::string require = {};        // as --require: fails unless this device did the work
  unsigned threads = 0;            // 0: one per core
  uint32_t context = 0;            // tokens; 0: the model's own
  std::string chat_template = {};  // as --chat-template; empty: the model's own
};

struct Question {
  std::string prompt = {};
  std::string system = {};
  bool raw = false;                       // the model continues the prompt; no chat template
  uint32_t most_tokens = UINT32_MAX;      // the answer also ends where the context is full
  std::optional<float> temperature = {};  // null: what the model's own settings ask for
  std::optional<uint64_t> seed = {};
};

struct Receipt {
  std::string line;            // "87 tokens · 41 tok/s · cpu"
  std::string details;         // one line with all that `tyto run -v` says of the work
  uint32_t prompt_tokens = 0;  // computed for this answer
  uint32_t cached_tokens = 0;  // known from earlier answers
  uint32_t generated_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  bool is_modelled = false;            // a virtual device took part: its time is not a measurement
  std::vector<std::string> fallbacks;  // work that the device left to the CPU, with reasons
};

struct Answer {
  std::string text;
  std::string thought;  // what the model thought before; empty where a prompt is raw
  std::string reason;   // "end of turn", "token limit", "context full", "cancelled"
  Receipt receipt;
};

// Gets the text as it is written, and an empty one while the model thinks; returns false to stop.
using OnText = std::function<bool(std::string_view)>;

// Used by one thread at a time. Everything throws std::runtime_error with one line that says what
// is wrong.
class Model {
 public:
  explicit Model(const ModelOptions& options);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  // With `require` the text is held until the receipt proves where it came from.
  Answer answer(const Question& question, const OnText& on_text = {});
  double setup_seconds() const;  // from the constructor to ready for the first token

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tyto::library

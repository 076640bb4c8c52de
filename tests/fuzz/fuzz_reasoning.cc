// Divides arbitrary bytes into thoughts and an answer: the first byte chooses the format, the
// second how the text is cut. A finding is a result that depends on the cuts, or that is not what a
// plain reading of the whole text says: bytes lost, doubled, or on the wrong side.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/reasoning.h"

namespace tyto {
namespace {

using Parts = std::pair<std::string, std::string>;  // thoughts, answer

void add(const ReasoningDelta& delta, Parts& parts) {
  parts.first += delta.reasoning;
  parts.second += delta.content;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

std::string_view without_leading_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

Parts read_think(std::string_view text, bool is_open) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  std::string_view thought = text;
  if (!is_open) {
    thought = without_leading_space(text);
    if (!thought.starts_with(kOpen)) return Parts("", text);
    thought.remove_prefix(kOpen.size());
  }
  const size_t end = thought.find(kClose);
  if (end == thought.npos) return Parts(trimmed(thought), "");
  return Parts(trimmed(thought.substr(0, end)),
               without_leading_space(thought.substr(end + kClose.size())));
}

// The whole text, cut at its markers.
class Harmony {
 public:
  explicit Harmony(bool only_final) : only_final_(only_final) {}

  Parts read(std::string_view text) {
    while (!text.empty()) {
      size_t at = text.size();
      std::string_view marker;
      for (const std::string_view each : kMarkers)
        if (const size_t place = text.find(each); place < at) at = place, marker = each;
      take_text(text.substr(0, at), marker.empty());
      if (!marker.empty()) take_marker(marker);
      text.remove_prefix(at + marker.size());
    }
    return parts_;
  }

 private:
  static constexpr std::string_view kMarkers[] = {"<|start|>",     "<|channel|>", "<|message|>",
                                                  "<|constrain|>", "<|end|>",     "<|return|>",
                                                  "<|call|>"};

  void take_text(std::string_view text, bool is_last) {
    if (text.empty()) return;
    if (in_message_) return say(text);
    if (!in_header_) {
      const std::string_view word = without_leading_space(text);
      in_header_ = word.starts_with("to=");
      if (word.empty() && !is_last) header_ += text, header_text_ += text;
      if (!in_header_ && (is_last || !word.empty())) return begin("", text);
    }
    if (!in_header_) return;
    header_ += text;
    header_text_ += text;
    if (header_.size() > 256) begin("", header_text_);
  }

  void take_marker(std::string_view marker) {
    if (marker == "<|message|>") {
      if (!in_message_) begin(header_, "");
    } else if (marker == "<|start|>" || (marker == "<|channel|>" && in_message_)) {
      in_message_ = false;
      in_header_ = true;
      forget_header();
      if (marker != "<|start|>") header_ = marker;
    } else if (marker == "<|channel|>") {
      in_header_ = true;
      header_ += marker;
    } else if (marker == "<|constrain|>") {
      if (in_message_) return;
      in_header_ = true;
      header_ += marker;
    } else {
      in_message_ = in_header_ = false;
      forget_header();
    }
  }

  std::string word_behind(std::string_view header, std::string_view mark) const {
    const size_t at = header.rfind(mark);
    if (at == header.npos) return "";
    const std::string_view word = without_leading_space(header.substr(at + mark.size()));
    return std::string(word.substr(0, word.find_first_of(" \t\r\n<")));
  }

  void begin(std::string_view header, std::string_view text) {
    const std::string channel = word_behind(header, "<|channel|>"), to = word_behind(header, "to=");
    is_thought_ = channel == "analysis" || (only_final_ && channel != "final");
    in_message_ = is_new_ = true;
    in_header_ = false;
    const std::string said(text);
    forget_header();
    if (!to.empty()) say("to=" + to + " ");
    if (!said.empty()) say(said);
  }

  void forget_header() {
    header_.clear();
    header_text_.clear();
  }

  void say(std::string_view text) {
    std::string& to = is_thought_ ? parts_.first : parts_.second;
    if (is_new_ && !to.empty()) to += "\n\n";
    is_new_ = false;
    to += text;
  }

  const bool only_final_;
  bool in_message_ = false, in_header_ = false, is_thought_ = false, is_new_ = false;
  std::string header_, header_text_;  // with its markers, and without
  Parts parts_;
};

void run(std::string_view input) {
  if (input.size() < 2) return;
  const bool is_harmony = input[0] % 2 != 0, is_odd = input[0] / 2 % 2 != 0;
  const std::string_view text = input.substr(2);
  const std::string_view prompt = is_harmony ? "<|start|>assistant" : is_odd ? "<think>" : "";
  const ReasoningStream begin(is_harmony ? ThoughtFormat::harmony : ThoughtFormat::think, prompt,
                              is_odd);
  ReasoningStream whole = begin, cut = begin;
  Parts whole_parts, cut_parts;
  add(whole.push(text), whole_parts);
  add(whole.finish(), whole_parts);
  auto seed = static_cast<uint32_t>(static_cast<uint8_t>(input[1]));
  for (std::string_view rest = text; !rest.empty();) {
    seed = seed * 1664525u + 1013904223u;
    const size_t size = std::min<size_t>(1 + (seed >> 24) % 9, rest.size());
    add(cut.push(rest.substr(0, size)), cut_parts);
    rest.remove_prefix(size);
  }
  add(cut.finish(), cut_parts);
  TYTO_ASSERT(whole_parts == cut_parts);
  TYTO_ASSERT(whole_parts == (is_harmony ? Harmony(is_odd).read(text) : read_think(text, is_odd)));
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run({reinterpret_cast<const char*>(data), size});
  return 0;
}

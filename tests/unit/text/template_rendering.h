// One-line rendering for the template tests.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/chat_template.h"

namespace tyto {

inline std::string rendered(std::string_view source, const std::vector<ChatMessage>& messages = {},
                            const ChatOptions& options = {}) {
  return ChatTemplate(source, "test").render(messages, options);
}

// What the template is refused with, without the part that every message begins with.
inline std::string complaint(std::string_view source,
                             const std::vector<ChatMessage>& messages = {}) {
  const std::string prefix = "chat template test: ";
  try {
    return "no error, but the text: " + rendered(source, messages);
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_EQ(what.substr(0, prefix.size()), prefix);
    return what.substr(std::min(prefix.size(), what.size()));
  }
}

using Table = std::initializer_list<std::pair<std::string_view, std::string_view>>;

inline void expect_rendered(const Table& cases) {
  for (const auto& [source, expected] : cases) {
    SCOPED_TRACE(source);
    try {
      EXPECT_EQ(rendered(source), expected);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

inline void expect_complaints(const Table& cases) {
  for (const auto& [source, expected] : cases) {
    SCOPED_TRACE(source);
    EXPECT_EQ(complaint(source), expected);
  }
}

}  // namespace tyto

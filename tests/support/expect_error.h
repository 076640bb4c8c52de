// EXPECT_ERROR(statement, words): it throws, and what the exception says has the words.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tyto {

inline std::string said_by(const std::exception& exception) {
  const auto* error = dynamic_cast<const Error*>(&exception);
  return error == nullptr ? exception.what() : error->what() + ("; " + error->hint);
}

template <typename Statement>
testing::AssertionResult throws_with(const Statement& statement, std::string_view words) {
  try {
    statement();
  } catch (const std::exception& exception) {
    const std::string said = said_by(exception);
    if (said.find(words) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "it says \"" << said << "\" and not: " << words;
  }
  return testing::AssertionFailure() << "nothing was thrown, which should say: " << words;
}

}  // namespace tyto

#define EXPECT_ERROR(statement, words) EXPECT_TRUE(::tyto::throws_with([&] { statement; }, words))

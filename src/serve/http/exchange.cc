#include "serve/http/exchange.h"

#include <algorithm>

namespace tyto::http {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool same_in_any_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (same_in_any_case(key, name)) return value;
  return {};
}

}  // namespace tyto::http

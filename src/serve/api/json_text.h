// JSON as it goes over the wire: one line, and U+FFFD for what is no UTF-8.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tyto::api {

using nlohmann::ordered_json;

inline std::string json_text(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

inline ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

}  // namespace tyto::api

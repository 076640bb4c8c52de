// Answers as HTTP/1.1 writes them.
#pragma once

#include <string>
#include <string_view>

#include "serve/http/exchange.h"

namespace tyto::http {

// What of the request decides how its answer is written.
struct AnswerForm {
  bool is_head = false;      // without the body
  bool is_http_1_0 = false;  // knows no chunks: a stream ends with the connection
  Headers cors = {};
  std::string path = {};  // errors are worded for it
};

std::string whole_answer(const Response& response, const AnswerForm& form, bool keep_alive);

// A stream's beginning; then pieces, and its end.
std::string stream_head(int status, const std::string& type, const Headers& headers,
                        const AnswerForm& form, bool keep_alive);
std::string stream_piece(std::string_view piece, const AnswerForm& form);
std::string_view stream_end(const AnswerForm& form);

}  // namespace tyto::http

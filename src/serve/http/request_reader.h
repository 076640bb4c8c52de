// Bytes of a connection to a request: first its head, then its body. Knows no sockets.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/exchange.h"

namespace tyto::http {

struct RequestHead {
  std::string method;
  std::string target;  // as it came
  bool is_http_1_0 = false;
  Headers headers = {};
};

struct Refusal {
  int status = 400;
  std::string message;
};

// Reads one request.
class RequestReader {
 public:
  RequestReader(size_t most_header_bytes, size_t most_body_bytes);
  ~RequestReader();

  // Reads from the beginning of `bytes` and says how many are done with; the others are to come
  // again, with more behind them. Stops after the head, once. Reading on after a refusal or behind
  // the end is a mistake.
  size_t read(std::string_view bytes);

  bool has_head() const;
  bool is_complete() const;
  const std::optional<Refusal>& refusal() const { return refusal_; }

  RequestHead head() const;
  std::string take_body();

 private:
  struct Parser;
  size_t read_head(std::string_view bytes);
  size_t read_body(std::string_view bytes);

  size_t most_header_bytes_;
  std::unique_ptr<Parser> parser_;
  size_t searched_ = 0;  // where the head's end is not
  std::optional<Refusal> refusal_;
};

}  // namespace tyto::http

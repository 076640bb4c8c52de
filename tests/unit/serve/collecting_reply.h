// An answer's end without a connection.
#pragma once

#include <string>

#include "base/json.h"
#include "serve/http/http_reply.h"

namespace tyto {

struct CollectingReply : http::Reply {
  void send(http::Response response) override {
    status = response.status;
    type = response.type;
    headers = response.headers;
    body += response.body;
    ++ends;
  }
  void begin(int with_status, std::string with_type, http::Headers with_headers) override {
    status = with_status;
    type = std::move(with_type);
    headers = std::move(with_headers);
    ++begins;
  }
  void write(std::string piece) override { body += piece; }
  void finish() override { ++ends; }
  void on_gone(std::function<void()> called) override { gone = std::move(called); }

  Json json() const { return Json::parse(body, "answer"); }

  int status = 0, begins = 0, ends = 0;
  std::string type, body;
  http::Headers headers;
  std::function<void()> gone;
};

}  // namespace tyto

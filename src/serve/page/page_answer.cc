#include "serve/page/page_answer.h"

#include <algorithm>
#include <string>

#include "serve/page/page_files.h"

namespace tyto {

std::optional<http::Response> page_answer(const http::Request& request) {
  if (request.method != "GET" && request.method != "HEAD") return {};
  const auto files = page_files();
  const auto file = std::ranges::find(files, request.path, &PageFile::path);
  if (file == files.end()) return {};
  http::Response response{
      .type = std::string(file->type),
      .headers = {{"ETag", std::string(file->etag)},
                  // Asked for anew each time, so that an update is seen at once.
                  {"Cache-Control", "no-cache"},
                  {"Content-Security-Policy", std::string(kPagePolicy)},
                  {"X-Content-Type-Options", "nosniff"},
                  {"Referrer-Policy", "no-referrer"}}};
  if (request.header("If-None-Match").find(file->etag) != std::string_view::npos)
    response.status = 304;
  else
    response.body = file->bytes;
  return response;
}

}  // namespace tyto

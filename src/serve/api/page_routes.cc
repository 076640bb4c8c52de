#include "serve/api/routes.h"
#include "serve/page/page_files.h"

namespace tyto::api {

bool answer_page_file(const Exchange& exchange) {
  const auto files = page_files();
  const auto file = std::ranges::find(files, exchange.request.path, &PageFile::path);
  if (file == files.end()) return false;
  http::Response response{
      .type = std::string(file->type),
      .headers = {{"ETag", std::string(file->etag)},
                  // Asked for anew each time, so that an update is seen at once.
                  {"Cache-Control", "no-cache"},
                  {"Content-Security-Policy", std::string(kPagePolicy)},
                  {"X-Content-Type-Options", "nosniff"},
                  {"Referrer-Policy", "no-referrer"}}};
  if (exchange.request.header("If-None-Match").find(file->etag) != std::string_view::npos)
    response.status = 304;
  else
    response.body = file->bytes;
  exchange.reply->send(std::move(response));
  return true;
}

}  // namespace tyto::api

#include "report/report.h"
#include "report/svg.h"
#include "serve/api/errors.h"
#include "serve/api/routes.h"

namespace tyto::api {
namespace {

// Reports carry their own styles, run no scripts and load nothing.
http::Headers report_headers() {
  return {{"Content-Security-Policy",
           "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"}};
}

StoredReceipt find_receipt(const Exchange& exchange) {
  StoredReceipt receipt = exchange.api.engine.receipts().find(exchange.name);
  if (receipt.id.empty())
    throw RequestError(
        404, "not_found", "",
        fmt::format("there is no receipt '{}'; only the last ones are kept", exchange.name));
  return receipt;
}

std::shared_ptr<const Profile> find_profile(const Exchange& exchange) {
  const StoredReceipt receipt = find_receipt(exchange);
  if (receipt.profile) return receipt.profile;
  throw RequestError(404, "not_found", "",
                     receipt.why_no_profile.empty()
                         ? "the request was not recorded; ask for it with \"profile\": true"
                         : receipt.why_no_profile);
}

ordered_json entry_json(const StoredReceipt& receipt) {
  return {{"id", receipt.id},
          {"time", receipt.time},
          {"model", receipt.model},
          {"line", receipt.line},
          {"badge", receipt.badge},
          {"prompt_tokens", receipt.prompt_tokens},
          {"cached_tokens", receipt.cached_tokens},
          {"generated_tokens", receipt.generated_tokens},
          {"profiled", receipt.profile != nullptr}};
}

}  // namespace

void answer_receipts(const Exchange& exchange) {
  ordered_json list = ordered_json::array();
  for (const StoredReceipt& receipt : exchange.api.engine.receipts().list())
    list.push_back(entry_json(receipt));
  exchange.send({{"receipts", std::move(list)}});
}

void answer_receipt(const Exchange& exchange) {
  exchange.reply->send({.body = find_receipt(exchange).json});
}

void answer_profile_json(const Exchange& exchange) {
  exchange.reply->send({.body = json_report(*find_profile(exchange))});
}

void answer_profile_page(const Exchange& exchange) {
  exchange.reply->send({.type = "text/html; charset=utf-8",
                        .body = html_report(*find_profile(exchange)),
                        .headers = report_headers()});
}

void answer_dataflow(const Exchange& exchange) {
  exchange.reply->send({.type = "image/svg+xml",
                        .body = flow_picture(*find_profile(exchange)),
                        .headers = report_headers()});
}

}  // namespace tyto::api

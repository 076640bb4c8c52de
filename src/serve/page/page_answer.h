// The page's files as answers of HTTP.
#pragma once

#include <optional>

#include "serve/http/exchange.h"

namespace tyto {

// Of a GET or HEAD of one of the page's paths; none for every other request. A browser that has the
// same bytes already is told so (304).
std::optional<http::Response> page_answer(const http::Request& request);

}  // namespace tyto

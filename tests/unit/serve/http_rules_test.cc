// Who may speak to the server, and how: hosts, origins, keys, paths.
#include "serve/http/request_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "serve/http/server.h"
#include "support/http_client.h"
#include "support/http_visits.h"

namespace tyto::http {
namespace {

using Verdict = std::variant<Admission, Response>;

Rules rules_of(const ServerOptions& options) {
  return make_rules(options, options.host, plain_error);
}

int status(const Verdict& verdict) {
  const auto* response = std::get_if<Response>(&verdict);
  return response ? response->status : 200;
}

int status(const ServerOptions& options, const Headers& headers, const std::string& path = "/") {
  return status(admit({.method = "GET", .target = path, .headers = headers}, rules_of(options)));
}

int status_of_host(const ServerOptions& options, const std::string& host) {
  return status(options, {{"Host", host}});
}

std::string path_of(const std::string& target) {
  const Verdict verdict =
      admit({.method = "GET", .target = target, .headers = {{"host", "localhost"}}}, rules_of({}));
  const auto* admission = std::get_if<Admission>(&verdict);
  return admission ? admission->request.path + "|" + admission->request.query
                   : std::to_string(status(verdict));
}

TEST(HttpRules, PathsAreDecoded) {
  const std::pair<const char*, const char*> kCases[] = {
      {"/", "/|"},
      {"/v1/models?a=%20b", "/v1/models|a=%20b"},
      {"/a%2Fb%c3%A9", "/a/b\u00e9|"},
      {"/a?b?c", "/a|b?c"},
      {"http://localhost:1/x?y", "/x|y"},
      {"HTTP://localhost", "/|"},
      {"http://localhost?y", "/|y"},
      {"/%", "400"},
      {"/%4", "400"},
      {"/%4g", "400"},
      {"/%00", "400"},
      {"/%ff", "400"},
      {"/\xff", "400"},
      {"*", "400"},
      {"localhost:80", "400"},
      {"", "400"},
      {"ftp://localhost/", "400"},
      {"http://evil.example/", "421"},
  };
  for (const auto& [target, expected] : kCases) EXPECT_EQ(path_of(target), expected) << target;
}

TEST(HttpRules, OnlyOurOwnNamesAreTaken) {
  ServerOptions options{.host = "192.168.1.7",
                        .allowed_hosts = {"Chat.example", "other.example:81"}};
  for (const char* host :
       {"localhost", "LOCALHOST:80", "127.0.0.1:9377", "[::1]", "[::1]:80", "192.168.1.7:9377",
        "chat.example", "chat.EXAMPLE:443", "other.example:81"})
    EXPECT_EQ(status_of_host(options, host), 200) << host;
  for (const char* host :
       {"evil.example", "localhost.evil.example", "evil.example:localhost", "", "other.example",
        "other.example:82", "192.168.1.8", "127.0.0.1.evil", "::1", "[::2]", "localhost:80:80"})
    EXPECT_EQ(status_of_host(options, host), 421) << host;
  EXPECT_EQ(status(options, {}), 400);
  EXPECT_EQ(status(options, {{"host", "localhost"}, {"Host", "localhost"}}), 400);
  EXPECT_EQ(status(admit({.method = "GET", .target = "/", .is_http_1_0 = true}, rules_of(options))),
            200);
}

TEST(HttpRules, WhoListensEverywhereKnowsItsAddressesButNotItsNames) {
  for (const char* everywhere : {"0.0.0.0", "::"}) {
    ServerOptions options{.host = everywhere};
    EXPECT_EQ(status_of_host(options, "192.168.1.7:9377"), 200);
    EXPECT_EQ(status_of_host(options, "[fe80::1]:9377"), 200);
    EXPECT_EQ(status_of_host(options, "tyto.lan"), 421);
    options.api_keys = {"secret"};
    EXPECT_EQ(status(options, {{"host", "tyto.lan"}, {"x-api-key", "secret"}}), 200);
    options.allowed_hosts = {"chat.example"};
    EXPECT_EQ(status(options, {{"host", "tyto.lan"}, {"x-api-key", "secret"}}), 421);
    EXPECT_EQ(status(options, {{"host", "chat.example"}, {"x-api-key", "secret"}}), 200);
  }
}

TEST(HttpRules, UnixSocketsTakeAnyNameUnlessTold) {
  ServerOptions options{.host = "unix:/run/tyto.sock"};
  EXPECT_EQ(status_of_host(options, "chat.example"), 200);
  options.allowed_hosts = {"chat.example"};
  EXPECT_EQ(status_of_host(options, "other.example"), 421);
}

TEST(HttpRules, OtherOriginsAreRefusedAndAllowedOnesGetCors) {
  const Headers own = {{"host", "localhost:9377"}, {"origin", "http://localhost:9377"}};
  const Headers other = {{"host", "localhost:9377"}, {"origin", "https://app.example"}};
  ServerOptions options;
  EXPECT_EQ(status(options, own), 200);
  EXPECT_EQ(status(options, other), 403);
  for (const char* origin : {"null", "http://localhost:80", "http://localhost", "",
                             "http://localhost:9377.evil.example", "file://localhost:9377"})
    EXPECT_EQ(status(options, {{"host", "localhost:9377"}, {"origin", origin}}), 403) << origin;

  options.allowed_origins = {"https://app.example"};
  const Verdict verdict =
      admit({.method = "POST", .target = "/", .headers = other}, rules_of(options));
  ASSERT_EQ(status(verdict), 200);
  EXPECT_EQ(std::get<Admission>(verdict).cors,
            (Headers{{"access-control-allow-origin", "https://app.example"}, {"vary", "origin"}}));
  const Verdict own_verdict =
      admit({.method = "GET", .target = "/", .headers = own}, rules_of(options));
  EXPECT_TRUE(std::get<Admission>(own_verdict).cors.empty());
  options.allowed_origins = {"*"};
  EXPECT_EQ(status(options, {{"host", "localhost:9377"}, {"origin", "null"}}), 200);
}

TEST(HttpRules, KeysAreNeededButForOpenPaths) {
  const ServerOptions options{.api_keys = {"first", "second"}};
  const auto with = [&](const std::string& name, const std::string& value) {
    return status(options, {{"host", "localhost"}, {name, value}});
  };
  EXPECT_EQ(with("Authorization", "Bearer first"), 200);
  EXPECT_EQ(with("authorization", "bearer  second "), 200);
  EXPECT_EQ(with("X-Api-Key", "second"), 200);
  for (const char* wrong : {"", "firs", "first1", "FIRST", "third"}) {
    EXPECT_EQ(with("x-api-key", wrong), 401) << wrong;
    EXPECT_EQ(with("authorization", std::string("Bearer ") + wrong), 401) << wrong;
  }
  EXPECT_EQ(with("authorization", "first"), 401);
  EXPECT_EQ(with("authorization", "Basic first"), 401);
  EXPECT_EQ(status(options, {{"host", "localhost"}}, "/health"), 200);
  EXPECT_EQ(status(options, {{"host", "localhost"}}, "/health/x"), 401);
}

TEST(HttpRules, HandlersDoNotSeeKeys) {
  const Verdict verdict = admit({.method = "GET",
                                 .target = "/",
                                 .headers = {{"Host", "localhost"},
                                             {"Authorization", "Bearer k"},
                                             {"X-Api-Key", "k"},
                                             {"Accept", "*/*"}}},
                                rules_of({.api_keys = {"k"}}));
  EXPECT_EQ(std::get<Admission>(verdict).request.headers,
            (Headers{{"Host", "localhost"}, {"Accept", "*/*"}}));
}

TEST(HttpRules, UnknownExpectationsAreRefused) {
  EXPECT_EQ(status({}, {{"host", "localhost"}, {"expect", "100-Continue"}}), 200);
  EXPECT_EQ(status({}, {{"host", "localhost"}, {"expect", "miracles"}}), 417);
}

TEST(HttpRules, RefusalsOnTheWireCloseAndPreflightsDoNot) {
  ServerOptions options = on_free_port();
  options.api_keys = {"k"};
  options.allowed_origins = {"https://app.example"};
  Server server(options, echo, plain_error);
  HttpClient stranger(server.port());
  const HttpAnswer refused = stranger.get("/", "origin: https://app.example\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.header("www-authenticate"), "Bearer");
  EXPECT_EQ(refused.header("access-control-allow-origin"), "https://app.example");
  EXPECT_TRUE(stranger.is_closed_by_server());

  HttpClient page(server.port());
  page.send(
      "OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\norigin: https://app.example\r\n"
      "access-control-request-method: POST\r\naccess-control-request-headers: x-one, two\r\n\r\n");
  const HttpAnswer preflight = page.read_answer();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "x-one, two");
  const HttpAnswer answer =
      page.get("/", "origin: https://app.example\r\nauthorization: Bearer k\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("access-control-allow-origin"), "https://app.example");

  // Not a preflight, and none for others.
  page.send("OPTIONS / HTTP/1.1\r\nhost: localhost\r\nx-api-key: k\r\n\r\n");
  EXPECT_EQ(page.read_answer().body, "OPTIONS /  ");
  page.send(
      "OPTIONS / HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\n"
      "access-control-request-method: POST\r\n\r\n");
  EXPECT_EQ(page.read_answer().status, 403);
}

TEST(HttpRules, KeysCanBeChanged) {
  Server server(on_free_port(), echo, plain_error);
  HttpClient client(server.port());
  EXPECT_EQ(client.get("/").status, 200);
  server.set_api_keys({"new"});
  EXPECT_EQ(client.get("/", "x-api-key: new\r\n").status, 200);
  EXPECT_EQ(client.get("/").status, 401);
}

}  // namespace
}  // namespace tyto::http

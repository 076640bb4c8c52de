// What a client may not do: send too much, take too long, read too little.
#include <gtest/gtest.h>

#include <string>

#include "serve/http/server.h"
#include "support/http_client.h"
#include "support/http_visits.h"

namespace tyto::http {
namespace {

using std::chrono::milliseconds;

constexpr const char* kGet = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

// The answer to these bytes, after which the server must close.
HttpAnswer last_answer(const Server& server, const std::string& bytes) {
  HttpClient client(server.port());
  client.send(bytes);
  HttpAnswer answer = client.read_answer();
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(client.is_closed_by_server());
  return answer;
}

TEST(HttpLimits, HeadersAreCountedTogether) {
  ServerOptions options = on_free_port();
  options.most_header_bytes = 1000;
  const Server server(options, echo, plain_error);
  const std::string head = "GET / HTTP/1.1\r\nhost: localhost\r\nx: ";
  const auto padded = [&](size_t bytes) {
    return head + std::string(bytes - head.size() - 4, 'x') + "\r\n\r\n";
  };
  HttpClient fits(server.port());
  fits.send(padded(1000));
  EXPECT_EQ(fits.read_answer().status, 200);
  EXPECT_EQ(last_answer(server, padded(1001)).status, 431);

  // Line by line, each of them short.
  HttpClient patient(server.port());
  patient.send("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 400 && patient.send("a: b\r\n"); ++i) {
  }
  EXPECT_EQ(patient.read_answer().status, 431);
}

TEST(HttpLimits, BodiesAreRefusedBeforeTheyAreRead) {
  ServerOptions options = on_free_port();
  options.most_body_bytes = 1000;
  const Server server(options, echo, plain_error);
  const std::string head = "POST / HTTP/1.1\r\nhost: localhost\r\n";
  HttpClient fits(server.port());
  EXPECT_EQ(fits.post("/", std::string(1000, 'x')).status, 200);
  // None of the body was sent, and all of it.
  const HttpAnswer answer = last_answer(server, head + "content-length: 1001\r\n\r\n");
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.body, "413: the body is larger than this server takes");
  EXPECT_EQ(
      last_answer(server, head + "content-length: 1001\r\n\r\n" + std::string(1001, 'x')).status,
      413);
  EXPECT_EQ(last_answer(server, head + "content-length: 99999999999999999999\r\n\r\n").status, 400);
  EXPECT_EQ(
      last_answer(server, head + "expect: 100-continue\r\ncontent-length: 1001\r\n\r\n").status,
      413);

  std::string chunks;
  for (int i = 0; i < 11; ++i) chunks += "64\r\n" + std::string(100, 'x') + "\r\n";
  const std::string chunked = head + "transfer-encoding: chunked\r\n\r\n";
  EXPECT_EQ(last_answer(server, chunked + chunks).status, 413);
  EXPECT_EQ(last_answer(server, chunked + "ffffffffffffffff\r\n").status, 413);
  // A chunk's header that never ends.
  EXPECT_EQ(
      last_answer(server, chunked + "1;" + std::string(options.most_header_bytes, 'x')).status,
      431);
}

// Requests that never reach the handler, each with the status that it gets. METHOD and TARGET stand
// for a request's.
const std::pair<int, const char*> kRefused[] = {
    {400, "METHOD TARGET HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n"},
    {400, "METHOD TARGET HTTP/1.1\r\nhost localhost\r\n\r\n"},
    {400, "METHOD TARGET%zz HTTP/1.1\r\nhost: localhost\r\n\r\n"},
    {401, "METHOD TARGET HTTP/1.1\r\nhost: localhost\r\n\r\n"},
    {403, "METHOD TARGET HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\r\n"},
    {413, "METHOD TARGET HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1001\r\n\r\n"},
    {413,
     "METHOD TARGET HTTP/1.1\r\nhost: localhost\r\nx-api-key: k\r\n"
     "transfer-encoding: chunked\r\n\r\nffffff\r\n"},
    {417, "METHOD TARGET HTTP/1.1\r\nhost: localhost\r\nx-api-key: k\r\nexpect: x\r\n\r\n"},
    {421, "METHOD TARGET HTTP/1.1\r\nhost: evil.example\r\n\r\n"},
    {431, "METHOD TARGET HTTP/1.1\r\nhost: localhost\r\nx: LONG\r\n\r\n"},
    {500, "METHOD TARGET HTTP/1.1\r\nhost: localhost\r\nx-api-key: k\r\n\r\n"},
};

std::string filled(std::string request, const std::string& method, const std::string& target) {
  const std::pair<std::string, std::string> kWords[] = {
      {"METHOD", method}, {"TARGET", target}, {"LONG", std::string(1000, 'x')}};
  for (const auto& [word, by] : kWords)
    if (const size_t at = request.find(word); at != request.npos)
      request.replace(at, word.size(), by);
  return request;
}

ServerOptions small_server_with_a_key() {
  ServerOptions options = on_free_port();
  options.most_header_bytes = options.most_body_bytes = 1000;
  options.api_keys = {"k"};
  return options;
}

std::string path_as_error(int, std::string_view path, const std::string&) {
  return std::string(path);
}

void drop(Request, const std::shared_ptr<Reply>&) {}  // becomes a 500

TEST(HttpLimits, EveryErrorIsWordedForItsPath) {
  const Server server(small_server_with_a_key(), drop, path_as_error);
  for (const auto& [status, request] : kRefused)
    for (const std::string target : {"/api/chat", "/api/chat?x=/v1", "http://localhost/api/chat"}) {
      // A query may hold anything, and a host in the target goes before the header.
      if ((status == 400 || status == 421) && target != "/api/chat") continue;
      const std::string bytes = filled(request, "POST", target);
      SCOPED_TRACE(bytes);
      HttpClient client(server.port());
      client.send(bytes);
      const HttpAnswer answer = client.read_answer();
      EXPECT_EQ(answer.status, status);
      EXPECT_TRUE(answer.body.starts_with("/api/chat")) << answer.body;
      EXPECT_EQ(answer.body.find("x="), std::string::npos);
    }
}

TEST(HttpLimits, ARefusedHeadHasNoBody) {
  const Server server(small_server_with_a_key(), drop, path_as_error);
  for (const auto& [status, request] : kRefused) {
    const std::string bytes = filled(request, "HEAD", "/api/chat");
    SCOPED_TRACE(bytes);
    HttpClient client(server.port());
    client.send(bytes + "HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n");
    const HttpAnswer answer = client.read_answer(false);
    EXPECT_EQ(answer.status, status);
    EXPECT_NE(answer.header("content-length"), "");
    const std::string rest = client.read_to_end();  // the second answer, where there is one
    EXPECT_TRUE(rest.empty() || rest.starts_with("HTTP/1.1 ")) << rest;
  }
}

TEST(HttpLimits, ARequestThatCameTooSlowlyIsToldSoForItsPath) {
  ServerOptions options = on_free_port();
  options.header_timeout = options.body_timeout = milliseconds(20);
  const Server server(options, echo, path_as_error);
  for (const char* bytes : {"POST /api/chat HTTP/1.1\r\nhost: loc",
                            "POST /api/chat HTTP/1.1\r\nhost: localhost\r\n"
                            "content-length: 5\r\n\r\nab"}) {
    const HttpAnswer answer = last_answer(server, bytes);
    EXPECT_EQ(answer.status, 408);
    EXPECT_EQ(answer.body, "/api/chat");
  }
}

TEST(HttpLimits, WhatIsNoHttpIsRefused) {
  const Server server(on_free_port(), echo, plain_error);
  for (const char* bytes : {
           "\x16\x03\x01\x02",  // a TLS client
           "GET /\r\n\r\n",
           "GET / HTTP/2.0\r\nhost: localhost\r\n\r\n",
           "GET / HTTP/1.1\r\nhost : localhost\r\n\r\n",
           "GET / HTTP/1.1\nhost: localhost\n\r\n\r\n",
           "GET / HTTP/1.1\r\n\r\n",
           "POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nxyz12\r\n",
       })
    EXPECT_EQ(last_answer(server, bytes).status, 400) << bytes;
}

TEST(HttpLimits, RequestsOfTwoLengthsAreRefused) {
  const Server server(on_free_port(), echo, plain_error);
  const std::string chunked = "transfer-encoding: chunked\r\n";
  for (const std::string& headers : {
           "content-length: 5\r\n" + chunked,
           chunked + "content-length: 5\r\n",
           "content-length: 5\r\ncontent-length: 5\r\n" + std::string(),
           "content-length: 5\r\ncontent-length: 6\r\n" + std::string(),
           "content-length: 5, 5\r\n" + std::string(),
           "content-length: +5\r\n" + std::string(),
           "transfer-encoding: gzip\r\n" + std::string(),
           "transfer-encoding: gzip, chunked\r\n" + std::string(),
           "transfer-encoding: chunked, chunked\r\n" + std::string(),
           "transfer-encoding: xchunked\r\n" + std::string(),
           "transfer-encoding: gzip\r\n" + chunked,
       })
    EXPECT_EQ(last_answer(server, "POST / HTTP/1.1\r\nhost: localhost\r\n" + headers +
                                      "\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
                  .status,
              400)
        << headers;
  EXPECT_EQ(last_answer(server, "POST / HTTP/1.0\r\n" + chunked + "\r\n0\r\n\r\n").status, 400);
}

TEST(HttpLimits, SlowRequestsAreRefused) {
  ServerOptions options = on_free_port();
  options.header_timeout = milliseconds(100);
  EXPECT_EQ(last_answer(Server(options, echo, plain_error), "GET / HTTP/1.1\r\nhost:").status, 408);
  options = on_free_port();
  options.body_timeout = milliseconds(100);
  EXPECT_EQ(last_answer(Server(options, echo, plain_error),
                        "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nab")
                .status,
            408);
}

TEST(HttpLimits, IdleConnectionsAreClosed) {
  ServerOptions options = on_free_port();
  options.idle_timeout = milliseconds(100);
  const Server server(options, echo, plain_error);
  EXPECT_TRUE(HttpClient(server.port()).is_closed_by_server());
  for (bool is_answered = false; !is_answered;) {  // a slow client may be closed before it asks
    HttpClient client(server.port());
    client.send(kGet);
    is_answered = client.read_answer().status == 200;
    EXPECT_TRUE(!is_answered || client.is_closed_by_server());
  }
}

// No limit on time is one on answers: those take as long as they take.
TEST(HttpLimits, AnswersMayTakeLongerThanRequests) {
  ServerOptions options = on_free_port();
  options.header_timeout = options.body_timeout = options.write_timeout = milliseconds(50);
  Visits visits;
  Server server(options, visits.handler(), plain_error);
  HttpClient waiting(server.port());
  waiting.send(kGet);
  const Visit visit = visits.next();
  // A request that comes too late tells that the time is over.
  EXPECT_EQ(last_answer(server, "GET").status, 408);
  EXPECT_EQ(last_answer(server, "GET").status, 408);
  visit.reply->send({.body = "late"});
  EXPECT_EQ(waiting.read_answer().body, "late");
}

// A client that reads nothing of a stream of 64 MiB, more than the kernel keeps for it.
void expect_cut_off(const ServerOptions& options) {
  Visits visits;
  Server server(options, visits.handler(), plain_error);
  HttpClient client(server.port(), 4096);
  client.send(kGet);
  const Visit visit = visits.next();
  Event gone;
  visit.reply->on_gone([&] { gone.happen(); });
  visit.reply->begin(200, "text/plain", {});
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 64 && gone.times() == 0; ++i) visit.reply->write(piece);
  ASSERT_TRUE(gone.wait());
  while (server.counts().connections > 0) std::this_thread::yield();
  EXPECT_TRUE(server.wait_idle(kLongEnough));
}

TEST(HttpLimits, WhoDoesNotReadIsCutOffInTime) {
  ServerOptions options = on_free_port();
  options.write_timeout = milliseconds(100);
  options.most_unsent_bytes = 1 << 30;
  expect_cut_off(options);
}

TEST(HttpLimits, WhoDoesNotReadIsCutOffBeforeItFillsTheMemory) {
  ServerOptions options = on_free_port();
  options.most_unsent_bytes = 1 << 20;
  options.write_timeout = 2 * kLongEnough;
  expect_cut_off(options);
}

TEST(HttpLimits, OnePieceMayBeLargerThanWhatMayWait) {
  ServerOptions options = on_free_port();
  options.most_unsent_bytes = 1 << 10;
  Visits visits;
  Server server(options, visits.handler(), plain_error);
  HttpClient client(server.port());
  client.send(kGet);
  const Visit visit = visits.next();
  visit.reply->begin(200, "text/plain", {});
  client.read_until("\r\n\r\n");
  visit.reply->write(std::string(1 << 20, 'x') + "end");
  EXPECT_EQ(client.read_until("end").size(), (1 << 20) + 3 + std::string("100003\r\n").size());
}

// A client that sends ahead while its answer is made is read to a point, and answered in the end.
TEST(HttpLimits, RequestsAheadOfTimeWait) {
  Visits visits;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient client(server.port());
  constexpr int kRequests = 4000;  // 148 KB
  client.send(kGet);
  Visit first = visits.next();
  std::thread sender([&] {
    for (int i = 1; i < kRequests; ++i) client.send(kGet);
  });
  first.reply->send({.status = 204});
  for (int i = 1; i < kRequests; ++i) visits.next().reply->send({.status = 204});
  sender.join();
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(client.read_answer().status, 204);
}

// Answers that the server gives by itself wait for their client, too.
TEST(HttpLimits, PreflightsAheadOfTimeWait) {
  ServerOptions options = on_free_port();
  options.allowed_origins = {"https://app.example"};
  const Server server(options, echo, plain_error);
  HttpClient client(server.port(), 4096);
  const std::string request =
      "OPTIONS / HTTP/1.1\r\nhost: localhost\r\norigin: https://app.example\r\n"
      "access-control-request-method: POST\r\n\r\n";
  std::string requests;
  for (int i = 0; i < 100'000; ++i) requests += request;
  const size_t sent = client.send_until_stuck(requests);
  EXPECT_LT(sent, requests.size());
  for (size_t i = 0; i < sent / request.size(); ++i) ASSERT_EQ(client.read_answer().status, 204);
}

}  // namespace
}  // namespace tyto::http

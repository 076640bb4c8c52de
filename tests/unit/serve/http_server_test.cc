// The server over real sockets: connections, streams, clients that go, and the end.
#include "serve/http/server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <latch>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/http_client.h"
#include "support/http_visits.h"

namespace tyto::http {
namespace {

constexpr const char* kGet = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

TEST(HttpServer, AnswersOneAfterTheOtherOnOneConnection) {
  Server server(on_free_port(), echo, plain_error);
  HttpClient client(server.port());
  const HttpAnswer first = client.get("/a%20b?c=%20d");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "GET /a b c=%20d ");
  EXPECT_EQ(first.header("content-type"), "text/plain");
  EXPECT_EQ(first.header("x-content-type-options"), "nosniff");
  EXPECT_EQ(first.header("referrer-policy"), "no-referrer");
  EXPECT_EQ(first.header("cache-control"), "no-store");
  EXPECT_EQ(first.header("connection"), "");
  EXPECT_EQ(first.header("date").size(), std::string("Sun, 06 Nov 1994 08:49:37 GMT").size());
  EXPECT_EQ(client.post("/", "body").body, "POST /  body");
  EXPECT_EQ(server.counts().accepted, 1u);
  EXPECT_EQ(server.counts().connections, 1u);
  EXPECT_EQ(server.counts().requests, 2u);
}

TEST(HttpServer, QuickPathsDoNotWaitForTheWorkers) {
  Event released;
  std::latch all_are_busy(2);
  std::set<std::thread::id> quick_threads, slow_threads;
  std::mutex mutex;
  const auto handler = [&](const Request& request, const std::shared_ptr<Reply>& reply) {
    {
      const std::lock_guard lock(mutex);
      (request.path == "/slow" ? slow_threads : quick_threads).insert(std::this_thread::get_id());
    }
    if (request.path == "/slow") {
      all_are_busy.count_down();
      released.wait();
    }
    reply->send({.body = request.path});
  };
  ServerOptions options = on_free_port();
  options.workers = 2;
  options.api_keys = {"k"};
  Server server(options, handler, plain_error);
  HttpClient slow(server.port()), slow_too(server.port()), waits(server.port());
  for (HttpClient* each : {&slow, &slow_too, &waits})
    each->send("GET /slow HTTP/1.1\r\nhost: localhost\r\nx-api-key: k\r\n\r\n");
  all_are_busy.wait();
  HttpClient client(server.port());
  for (const char* path : {"/health", "/v1/health", "/health"})
    EXPECT_EQ(client.get(path).body, path);
  EXPECT_EQ(HttpClient(server.port()).get("/v1/health/x").status, 401);
  released.happen();
  for (HttpClient* each : {&slow, &slow_too, &waits}) EXPECT_EQ(each->read_answer().body, "/slow");
  EXPECT_EQ(slow_threads.size(), 2u);
  EXPECT_EQ(quick_threads.size(), 1u) << "the one that reads and writes";
  EXPECT_FALSE(slow_threads.contains(*quick_threads.begin()));
}

TEST(HttpServer, HandlersHeadersGoBeforeTheServers) {
  const auto handler = [](Request, const std::shared_ptr<Reply>& reply) {
    reply->send({.headers = {{"Cache-Control", "max-age=60"}, {"x-line", "one\r\ntwo: three"}}});
  };
  Server server(on_free_port(), handler, plain_error);
  const HttpAnswer answer = HttpClient(server.port()).get("/");
  EXPECT_EQ(answer.header("cache-control"), "");
  EXPECT_EQ(answer.header("Cache-Control"), "max-age=60");
  EXPECT_EQ(answer.header("x-line"), "one  two: three");
}

TEST(HttpServer, HeadHasNoBody) {
  Server server(on_free_port(), echo, plain_error);
  HttpClient client(server.port());
  client.send("HEAD /x HTTP/1.1\r\nhost: localhost\r\n\r\n");
  const HttpAnswer answer = client.read_answer(false);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("content-length"), "8");  // the length of "GET /x  "
  EXPECT_EQ(client.get("/y").body, "GET /y  ");
}

TEST(HttpServer, ClosesWhereTheClientAsksAndWithHttp10) {
  Server server(on_free_port(), echo, plain_error);
  for (const char* request :
       {"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: x, Close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"}) {
    HttpClient client(server.port());
    client.send(request);
    const HttpAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_TRUE(client.is_closed_by_server());
  }
}

TEST(HttpServer, PipelinedRequestsWaitForTheirTurn) {
  Visits visits;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient client(server.port());
  client.send(
      "GET /1 HTTP/1.1\r\nhost: localhost\r\n\r\n"
      "POST /2 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\nabc"
      "GET /3 HTTP/1.1\r\nhost: localhost\r\n\r\n");
  for (const char* path : {"/1", "/2", "/3"}) {
    const Visit visit = visits.next();
    EXPECT_EQ(visit.request.path, path);
    EXPECT_EQ(server.counts().requests, static_cast<uint64_t>(path[1] - '0'));
    visit.reply->send({.body = path});
    EXPECT_EQ(client.read_answer().body, path);
  }
}

TEST(HttpServer, TakesBodiesInChunksAndOnRequest) {
  Server server(on_free_port(), echo, plain_error);
  HttpClient client(server.port());
  // Piece by piece, cut where it hurts.
  for (const char* piece :
       {"POST / HTTP/1.1\r\nhost: localhost\r\n", "transfer-encoding: chunked\r\n\r", "\n4",
        ";x=y\r\nab", "cd\r", "\n1\r\n", "e\r\n0\r\n", "\r", "\n"})
    client.send(piece);
  EXPECT_EQ(client.read_answer().body, "POST /  abcde");

  client.send(
      "POST / HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 100);
  client.send("ok");
  EXPECT_EQ(client.read_answer().body, "POST /  ok");
}

TEST(HttpServer, StreamsPiecesAsTheyCome) {
  Visits visits;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient client(server.port());
  client.send(kGet);
  const Visit visit = visits.next();
  visit.reply->begin(200, "text/event-stream", {{"x-own", "1"}});
  EXPECT_NE(client.read_until("\r\n\r\n").find("transfer-encoding: chunked\r\n"),
            std::string::npos);
  for (const std::string piece : {"one", "two"}) {
    visit.reply->write(piece);
    EXPECT_EQ(client.read_until(piece + "\r\n"), "3\r\n" + piece + "\r\n");
  }
  visit.reply->write("");  // would be the end, as a chunk
  visit.reply->finish();
  EXPECT_EQ(client.read_until("\r\n\r\n"), "0\r\n\r\n");

  client.send(kGet);
  const Visit next = visits.next();
  next.reply->begin(201, "text/plain", {});
  std::string sent;
  for (int i = 0; i < 5000; ++i) {
    next.reply->write(std::to_string(i) + " ");
    sent += std::to_string(i) + " ";
  }
  next.reply->finish();
  const HttpAnswer answer = client.read_answer();
  EXPECT_TRUE(answer.is_whole);
  EXPECT_EQ(answer.body, sent);
}

TEST(HttpServer, StreamsToHttp10UntilItCloses) {
  Visits visits;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient client(server.port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  const Visit visit = visits.next();
  visit.reply->begin(200, "text/plain", {});
  visit.reply->write("one");
  visit.reply->write("two");
  visit.reply->finish();
  const HttpAnswer answer = client.read_answer();
  EXPECT_EQ(answer.header("transfer-encoding"), "");
  EXPECT_EQ(answer.body, "onetwo");
  EXPECT_TRUE(answer.is_whole);
}

TEST(HttpServer, LargeAnswersArriveWhole) {
  const std::string large(20 << 20, 'x');
  const auto handler = [&](Request, const std::shared_ptr<Reply>& reply) {
    reply->send({.body = large});
  };
  Server server(on_free_port(), handler, plain_error);
  const HttpAnswer answer = HttpClient(server.port()).get("/");
  EXPECT_TRUE(answer.is_whole);
  EXPECT_EQ(answer.body.size(), large.size());
}

TEST(HttpServer, HandlersThatThrowOrForgetAreA500) {
  const auto handler = [](Request request, const std::shared_ptr<Reply>& reply) {
    if (request.path == "/error") throw Error(ErrorCode::input, "model.gguf", "is a potato");
    if (request.path == "/other") throw std::logic_error("other");
    if (request.path == "/unknown") throw 7;
    if (request.path == "/worker") reply->on_worker([reply] { throw 7; });
    if (request.path == "/stream") {
      reply->begin(200, "text/plain", {});
      reply->write("begun");
      throw std::runtime_error("late");
    }
  };
  Server server(on_free_port(), handler, plain_error);
  HttpClient client(server.port());
  const HttpAnswer error = client.get("/error");
  EXPECT_EQ(error.status, 500);
  EXPECT_EQ(error.body, "500: model.gguf: is a potato");
  EXPECT_EQ(client.get("/other").body, "500: other");
  EXPECT_EQ(client.get("/unknown").body, "500: an exception of an unknown kind was thrown");
  for (const char* path : {"/forgotten", "/worker"})
    EXPECT_EQ(client.get(path).body, "500: the request was dropped without an answer");
  // What came must not be taken for the whole.
  EXPECT_FALSE(client.get("/stream").is_whole);
  EXPECT_EQ(HttpClient(server.port()).get("/other").status, 500);
}

// As where memory is short, and the words of the error take some, too.
TEST(HttpServer, AnErrorThatCannotBeWrittenClosesItsConnectionAlone) {
  const auto handler = [](const Request& request, const std::shared_ptr<Reply>& reply) {
    if (request.path == "/error") throw std::bad_alloc();
    if (request.path == "/unknown" || request.path == "/health") throw 7;
    if (request.path == "/here") reply->send({.body = "here"});
  };
  const auto error_body = [](int, std::string_view, const std::string&) -> std::string {
    throw std::bad_alloc();
  };
  Server server(on_free_port(), handler, error_body);
  for (const std::string path : {"/error", "/unknown", "/health", "/forgotten"}) {
    HttpClient client(server.port());
    client.send("GET " + path + " HTTP/1.1\r\nhost: localhost\r\n\r\n");
    EXPECT_TRUE(client.is_closed_by_server()) << path;
    EXPECT_EQ(HttpClient(server.port()).get("/here").body, "here") << path;
  }
  EXPECT_TRUE(server.wait_idle(kLongEnough));
}

// Each of the ways to go, while the handler is at work and says nothing.
void expect_gone(void (*leave)(HttpClient&)) {
  Visits visits;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient client(server.port());
  client.send(kGet);
  const Visit visit = visits.next();
  Event gone;
  visit.reply->on_gone([&] { gone.happen(); });
  leave(client);
  EXPECT_TRUE(gone.wait());
  visit.reply->begin(200, "text/plain", {});
  visit.reply->write("to nobody");
  visit.reply->finish();
  EXPECT_TRUE(server.wait_idle(kLongEnough));
  EXPECT_EQ(gone.times(), 1);
}

TEST(HttpServer, WhoThrowsWhenAClientHasGoneEndsNothing) {
  Visits visits;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient client(server.port()), other(server.port());
  client.send(kGet);
  const Visit visit = visits.next();
  visit.reply->on_gone([] { throw 7; });
  client.close();
  EXPECT_TRUE(server.wait_idle(kLongEnough));
  other.send(kGet);
  visits.next().reply->send({.body = "here"});
  EXPECT_EQ(other.read_answer().body, "here");
}

TEST(HttpServer, WorkersRunWhatOtherThreadsMustNotWaitFor) {
  Visits visits;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient client(server.port());
  client.send(kGet);
  const Visit visit = visits.next();
  visit.reply->on_worker([reply = visit.reply, asked = std::this_thread::get_id()] {
    reply->send({.body = std::this_thread::get_id() == asked ? "here" : "there"});
  });
  EXPECT_EQ(client.read_answer().body, "there");
}

TEST(HttpServer, NoticesAClientThatCloses) {
  expect_gone([](HttpClient& client) { client.close(); });
}

TEST(HttpServer, NoticesAClientThatResets) {
  expect_gone([](HttpClient& client) { client.reset(); });
}

TEST(HttpServer, TakesAClosedSideForGone) {
  expect_gone([](HttpClient& client) { client.close_sending_side(); });
}

TEST(HttpServer, NoticesAClientThatClosesInMidStream) {
  Visits visits;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient client(server.port());
  client.send(kGet);
  const Visit visit = visits.next();
  Event gone, late;
  visit.reply->on_gone([&] { gone.happen(); });
  visit.reply->begin(200, "text/plain", {});
  visit.reply->write("piece");
  client.read_until("piece");
  client.close();
  EXPECT_TRUE(gone.wait());
  visit.reply->on_gone([&] { late.happen(); });  // has gone already
  EXPECT_EQ(late.times(), 1);
}

TEST(HttpServer, NobodyIsGoneAfterAWholeAnswer) {
  Visits visits;
  Event gone;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient client(server.port());
  client.send(kGet);
  const Visit visit = visits.next();
  visit.reply->on_gone([&] { gone.happen(); });
  visit.reply->send({.body = "whole"});
  EXPECT_EQ(client.read_answer().body, "whole");
  client.close();
  while (server.counts().connections > 0) std::this_thread::yield();
  visit.reply->on_gone([&] { gone.happen(); });
  EXPECT_EQ(gone.times(), 0);
}

TEST(HttpServer, RepliesOutliveTheServer) {
  Visits visits;
  Event gone;
  Visit visit;
  {
    Server server(on_free_port(), visits.handler(), plain_error);
    HttpClient client(server.port());
    client.send(kGet);
    visit = visits.next();
    visit.reply->on_gone([&] { gone.happen(); });
    visit.reply->begin(200, "text/plain", {});
  }
  EXPECT_EQ(gone.times(), 1);
  visit.reply->on_worker([] { FAIL() << "there are no workers any more"; });
  visit.reply->write("to nobody");
  visit.reply->finish();
}

TEST(HttpServer, DrainsByAnsweringWhatItHasBegun) {
  Visits visits;
  Server server(on_free_port(), visits.handler(), plain_error);
  HttpClient idle(server.port()), late(server.port()), whole(server.port()), stream(server.port());
  idle.send(kGet);
  visits.next().reply->send({});
  EXPECT_EQ(idle.read_answer().status, 200);
  whole.send("GET /whole HTTP/1.1\r\nhost: localhost\r\n\r\n");
  const Visit first = visits.next();
  stream.send("GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n");
  const Visit second = visits.next();
  second.reply->begin(200, "text/plain", {});
  stream.read_until("\r\n\r\n");
  late.send("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nab");
  while (server.counts().requests < 4) std::this_thread::yield();

  server.drain();
  EXPECT_TRUE(idle.is_closed_by_server());
  EXPECT_FALSE(HttpClient(server.port()).is_connected());
  late.send("cd");
  const HttpAnswer refused = late.read_answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("connection"), "close");
  EXPECT_TRUE(late.is_closed_by_server());
  EXPECT_FALSE(server.wait_idle(std::chrono::milliseconds(1)));

  first.reply->send({.body = "whole"});
  const HttpAnswer answer = whole.read_answer();
  EXPECT_EQ(answer.body, "whole");
  EXPECT_EQ(answer.header("connection"), "close");
  second.reply->write("rest");
  second.reply->finish();
  EXPECT_EQ(stream.read_to_end(), "4\r\nrest\r\n0\r\n\r\n");
  EXPECT_TRUE(server.wait_idle(kLongEnough));
  server.drain();  // twice does no harm
}

size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(HttpServer, IdleConnectionsCostNoThreads) {
  Server server(on_free_port(), echo, plain_error);
  std::vector<HttpClient> idle;
  idle.emplace_back(server.port());
  EXPECT_EQ(idle.back().get("/").status, 200);
  const size_t threads = threads_of_this_process();
  for (int i = 1; i < 300; ++i) {
    idle.emplace_back(server.port());
    ASSERT_EQ(idle.back().get("/").status, 200);
  }
  EXPECT_EQ(threads_of_this_process(), threads);
  EXPECT_EQ(server.counts().connections, 300u);
}

TEST(HttpServer, OneConnectionTooManyIsToldSo) {
  ServerOptions options = on_free_port();
  options.most_connections = 2;
  Server server(options, echo, plain_error);
  HttpClient first(server.port()), second(server.port());
  EXPECT_EQ(first.get("/").status, 200);
  EXPECT_EQ(second.get("/").status, 200);
  HttpClient third(server.port());
  EXPECT_EQ(third.get("/").status, 503);
  EXPECT_TRUE(third.is_closed_by_server());
  third.close();
  EXPECT_EQ(server.counts().refused, 1u);
  EXPECT_EQ(first.get("/").status, 200);
  first.close();
  while (server.counts().connections > 1) std::this_thread::yield();
  EXPECT_EQ(HttpClient(server.port()).get("/").status, 200);
}

TEST(HttpServer, ConnectionsWaitWhileThereAreNoFileDescriptors) {
  Server server(on_free_port(), echo, plain_error);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = dup(STDIN_FILENO);
  close(lowest_free);
  rlimit only_one_more = before;
  only_one_more.rlim_cur = static_cast<rlim_t>(lowest_free) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &only_one_more), 0);
  HttpClient client(server.port());  // takes it
  EXPECT_TRUE(client.is_connected());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(client.get("/").status, 200);
}

// Where it listens.

TEST(HttpServer, ListensOnIpv6) {
  ServerOptions options = on_free_port();
  options.host = "::1";
  try {
    const Server six(options, echo, plain_error);
    EXPECT_EQ(six.address(), "[::1]:" + std::to_string(six.port()));
  } catch (const Error&) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  options.host = "::";  // IPv4 as well
  const Server everywhere(options, echo, plain_error);
  EXPECT_EQ(HttpClient(everywhere.port()).get("/").status, 200);
}

TEST(HttpServer, ListensOnUnixSockets) {
  const std::string path = testing::TempDir() + "tyto_http_" + std::to_string(getpid()) + ".sock";
  ServerOptions options;
  options.host = "unix:" + path;
  for (int i = 0; i < 2; ++i) {
    const Server server(options, echo, plain_error);
    EXPECT_EQ(server.address(), "unix:" + path);
    EXPECT_EQ(server.port(), 0);
    EXPECT_EQ(HttpClient(path).get("/x").body, "GET /x  ");
    EXPECT_ERROR(Server(options, echo, plain_error), "Address already in use");  // in use
    EXPECT_EQ(HttpClient(path).get("/x").status, 200);
  }
  EXPECT_FALSE(std::filesystem::exists(path));

  // What a server that was killed leaves behind.
  const int killed = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(killed, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(killed);
  const Server server(options, echo, plain_error);
  EXPECT_EQ(HttpClient(path).get("/").status, 200);
}

TEST(HttpServer, TakesASocketThatListensAlready) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ServerOptions options;
  options.listening_fd = fd;
  EXPECT_ERROR(Server(options, echo, plain_error), "is not a socket that listens");
  ASSERT_EQ(listen(fd, 16), 0);
  EXPECT_TRUE(is_local(options));
  const Server server(options, echo, plain_error);
  EXPECT_NE(server.port(), 0);
  EXPECT_EQ(HttpClient(server.port()).get("/").status, 200);
}

TEST(HttpServer, SaysWhyItCannotListen) {
  const Server first(on_free_port(), echo, plain_error);
  ServerOptions options;
  options.port = first.port();
  try {
    const Server second(options, echo, plain_error);
    FAIL() << "both listen";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), first.address() + ": cannot listen: Address already in use");
  }
  options.host = "no.such.host.invalid";
  EXPECT_ERROR(Server(options, echo, plain_error), "cannot listen");
  options.host = "unix:";
  EXPECT_ERROR(Server(options, echo, plain_error), "a socket's path has 1 to 107 bytes");
}

TEST(HttpServer, KnowsWhoCanReachIt) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1", "unix:/run/tyto.sock"})
    EXPECT_TRUE(is_local({.host = host})) << host;
  for (const char* host : {"0.0.0.0", "::", "192.168.1.1", "example.org", "127.example.org"})
    EXPECT_FALSE(is_local({.host = host})) << host;
}

}  // namespace
}  // namespace tyto::http

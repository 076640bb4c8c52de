// Reads arbitrary bytes as a connection's requests, up to where the handler would get them. They
// mean the same in whatever pieces they come.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "serve/http/http_reply.h"
#include "serve/http/request_reader.h"

namespace tyto::http {
namespace {

constexpr size_t kMostHeaderBytes = 16 << 10;
constexpr size_t kMostBodyBytes = 4000;

std::string plain_error(int status, std::string_view path, const std::string& message) {
  return std::to_string(status) + " " + std::string(path) + ": " + message;
}

const Rules& rules() {
  static const Rules made = make_rules(
      {.api_keys = {"key"}, .allowed_origins = {"https://app.example"}}, "127.0.0.1", plain_error);
  return made;
}

// What a request's head came to, and what a handler would see of it.
std::string verdict_on(const RequestHead& head) {
  const auto verdict = admit(head, rules());
  if (const auto* response = std::get_if<Response>(&verdict))
    return whole_answer({.status = response->status, .body = response->body}, {}, false)
        .substr(0, 12);
  const Request& request = std::get<Admission>(verdict).request;
  TYTO_ASSERT(request.path.starts_with('/') && request.path.find('\0') == std::string::npos);
  TYTO_ASSERT(request.header("x-api-key").empty() && request.header("authorization").empty());
  return request.method + " " + request.path;
}

// A connection without its socket.
class Requests {
 public:
  explicit Requests(size_t most_header_bytes) : most_header_bytes_(most_header_bytes) {}

  void receive(std::string_view bytes) {
    pending_ += bytes;
    while (!is_refused_ && !pending_.empty() && step()) {
    }
  }
  const std::string& story() const { return story_; }

 private:
  // Whether there may be more to do.
  bool step() {
    if (!reader_) reader_ = std::make_unique<RequestReader>(most_header_bytes_, kMostBodyBytes);
    const bool had_head = reader_->has_head();
    const size_t taken = reader_->read(pending_);
    TYTO_ASSERT(taken <= pending_.size());
    pending_.erase(0, taken);
    is_refused_ = reader_->refusal().has_value();  // sooner or later, but never after a request
    if (is_refused_) return false;
    const bool has_new_head = !had_head && reader_->has_head();
    if (has_new_head) story_ += verdict_on(reader_->head()) + "\n";
    if (!reader_->is_complete()) return has_new_head || taken > 0;
    const std::string body = reader_->take_body();
    TYTO_ASSERT(body.size() <= kMostBodyBytes);
    story_ += body + "\n";
    reader_.reset();
    return true;
  }

  const size_t most_header_bytes_;
  std::unique_ptr<RequestReader> reader_;
  std::string pending_;
  std::string story_;
  bool is_refused_ = false;
};

std::string read_in_pieces(std::string_view bytes, size_t piece, size_t most_header_bytes) {
  Requests requests(most_header_bytes);
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size())))
    requests.receive(bytes.substr(0, piece));
  return requests.story();
}

// The first byte says how large the pieces are.
void run(std::string_view input) {
  if (input.empty()) return;
  const size_t piece = 1 + static_cast<unsigned char>(input[0]);
  const std::string_view bytes = input.substr(1);
  read_in_pieces(bytes, piece, 100);
  // A chunk's header that is too long is let through where it comes in one piece.
  if (bytes.size() > kMostHeaderBytes) return;
  TYTO_ASSERT(read_in_pieces(bytes, piece, kMostHeaderBytes) ==
              read_in_pieces(bytes, bytes.size(), kMostHeaderBytes));
}

}  // namespace
}  // namespace tyto::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::http::run({reinterpret_cast<const char*>(data), size});
  return 0;
}

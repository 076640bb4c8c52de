#include "hub/hub_api.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "hub/cache_layout.h"
#include "hub/http.h"

namespace tyto {
namespace {

constexpr const char* kUsualEndpoint = "https://huggingface.co";
constexpr const char* kNoNetwork =
    "no network, or a proxy is needed (https_proxy); HF_ENDPOINT names a mirror";
constexpr uint64_t kLongestToken = 4096;
constexpr size_t kLongestAnswer = 16 << 20;  // a page of a thousand files is 0.3 MB
constexpr unsigned kMostPages = 100;
constexpr unsigned kMostApiRedirects = 5;
constexpr uint64_t kLargestFile = uint64_t{1} << 50;

std::string trimmed(std::string text) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), is_space));
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

std::string read_token(const HubVariables& variables) {
  std::string token = trimmed(variables.token);
  std::string place = "HF_TOKEN";
  std::error_code ignored;
  if (token.empty() && std::filesystem::exists(variables.token_file, ignored)) {
    place = variables.token_file.string();
    token = trimmed(read_text_file(variables.token_file, kLongestToken));
  }
  const auto is_plain = [](unsigned char c) { return c > ' ' && c < 0x7f; };
  if (token.size() > kLongestToken || !std::all_of(token.begin(), token.end(), is_plain))
    throw Error(ErrorCode::usage, place, "is not a token: it has other characters than a token has",
                "make one on the hub's page of access tokens");
  return token;
}

bool is_hexadecimal(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
         });
}

HubFile file_of(const Json& entry, const std::string& repo) {
  HubFile file;
  file.path = entry.at("path").as_string();
  if (!stays_below(file.path))
    fail_input(repo, "the hub lists a file \"{}\", which is not a name for a file of a repository",
               printable_name(file.path));
  const auto lfs = entry.find("lfs");
  file.size = (lfs ? *lfs : entry).at("size").as_uint(kLargestFile);
  file.hash = (lfs ? *lfs : entry).at("oid").as_string();
  if (!is_hexadecimal(file.hash, lfs ? 64 : 40))
    fail_input(repo, "the hub says no hash of {}", printable_name(file.path));
  return file;
}

// The body of an answer that is not an error; redirects followed, failures tried again.
std::string get_text(const Hub& hub, const std::string& repo, std::string url,
                     const HubHooks& hooks, HttpAnswer& answer) {
  HttpClient client(hub.user_agent, hub.timeout);
  Attempts attempts(hub.retries);
  for (unsigned redirects = 0;;) {
    std::string body;
    client.start({.url = url, .token = token_for(hub, url)}, [&](const HttpAnswer&,
                                                                 std::span<const std::byte> bytes) {
      if (body.size() + bytes.size() > kLongestAnswer)
        fail_input(repo, "the hub's answer is longer than {} MiB", kLongestAnswer >> 20);
      body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    for (bool has_ended = false; !has_ended;) {
      check_interrupted(hooks);
      for (auto& [id, each] : client.wait(std::chrono::milliseconds(100))) {
        answer = std::move(each);
        has_ended = true;
      }
    }
    if (answer.failure.empty() && answer.status >= 200 && answer.status < 300) return body;
    if (answer.is_redirect()) {
      if (++redirects > kMostApiRedirects)
        fail_input(repo, "the hub redirects more than {} times", kMostApiRedirects);
      url = linked_url(url, answer.header("location"));
    } else if (is_worth_a_retry(answer) && !answer.is_unresolved) {
      const auto wait = attempts.after(answer, hub.endpoint, answer.status == 0 ? kNoNetwork : "");
      hooks.note(fmt::format("{}: {}; trying again in {:.1f} s ({} of {})", hub.endpoint,
                             reason_of(answer), static_cast<double>(wait.count()) / 1000,
                             attempts.failures(), attempts.retries()));
      pause(wait, hooks);
    } else {
      refuse(hub, repo, "", answer);
    }
  }
}

// `<https://...>; rel="next"`
std::string next_page(const std::string& url, const HttpAnswer& answer) {
  const std::string link = answer.header("link");
  const size_t begin = link.find('<');
  const size_t end = link.find('>');
  if (begin == std::string::npos || end == std::string::npos || end < begin ||
      link.find("rel=\"next\"", end) == std::string::npos)
    return "";
  return linked_url(url, link.substr(begin + 1, end - begin - 1));
}

// "ORG/REPO/blob/main/FILE" of a page's address on a hub; none of anything else.
std::optional<std::string> path_on_hub(std::string_view name, const std::string& endpoint) {
  for (const std::string& start :
       {endpoint + "/", std::string(kUsualEndpoint) + "/",
        std::string("https://www.huggingface.co/"), std::string("http://huggingface.co/"),
        std::string("huggingface.co/"), std::string("https://hf.co/"), std::string("hf.co/")}) {
    if (start == "/" || !name.starts_with(start)) continue;
    std::string_view path = name.substr(start.size());
    path = path.substr(0, path.find_first_of("?#"));
    while (path.ends_with('/')) path.remove_suffix(1);
    return std::string(path);
  }
  return std::nullopt;
}

// "ORG/REPO:FILE" of "ORG/REPO/blob/REVISION/FILE", and of a folder "ORG/REPO".
std::string name_in_path(const std::string& path, std::string& revision) {
  std::vector<std::string> parts;
  std::istringstream names(path);
  for (std::string part; std::getline(names, part, '/');) parts.push_back(part);
  const std::string kind = parts.size() > 2 ? parts[2] : "";
  const bool is_file = kind == "blob" || kind == "resolve" || kind == "raw";
  if (parts.size() < 4 || (!is_file && kind != "tree")) return path;
  revision = parts[3];
  const std::string repo = parts[0] + "/" + parts[1];
  if (!is_file || parts.size() == 4) return repo;
  return repo + ":" + joined(std::span(parts).subspan(4), "/");
}

}  // namespace

Hub hub_of_environment() {
  const HubVariables variables = hub_variables();
  Hub hub;
  hub.endpoint = variables.endpoint.empty() ? kUsualEndpoint : variables.endpoint;
  while (hub.endpoint.ends_with('/')) hub.endpoint.pop_back();
  if (!is_http_url(hub.endpoint))
    throw Error(ErrorCode::usage, "HF_ENDPOINT",
                fmt::format("\"{}\" is not an address of a hub",
                            printable_name(redacted_address(hub.endpoint))),
                fmt::format("it is like {}", kUsualEndpoint));
  hub.token = read_token(variables);
  return hub;
}

std::string token_for(const Hub& hub, const std::string& url) {
  return is_same_origin(hub.endpoint, url) ? hub.token : "";
}

RepoName parse_repo_name(const std::string& name, const std::string& endpoint) {
  std::string rest = name.starts_with("hf:") ? name.substr(3) : name;
  std::string revision;
  if (const auto path = path_on_hub(name, endpoint)) rest = name_in_path(*path, revision);
  const size_t colon = rest.find(':');
  RepoName result{rest.substr(0, colon), colon == std::string::npos ? "" : rest.substr(colon + 1),
                  revision};
  const size_t slash = result.repo.find('/');
  const auto is_good = [](std::string_view part) {
    return !part.empty() && part.size() <= 96 && !part.starts_with('.') && !part.starts_with('-') &&
           part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos &&
           std::all_of(part.begin(), part.end(), [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
           });
  };
  const std::string_view repo = result.repo;
  if (slash == std::string::npos || !is_good(repo.substr(0, slash)) ||
      !is_good(repo.substr(slash + 1)) || (colon != std::string::npos && result.asked.empty()))
    throw Error(
        ErrorCode::usage, printable_name(name), "is not the name of a repository",
        "tyto pull ORG/REPO, ORG/REPO:Q4_K_M or ORG/REPO:FILE.gguf; `tyto pull` alone lists "
        "some");
  return result;
}

HubListing list_files(const Hub& hub, const std::string& repo, const std::string& revision,
                      const HubHooks& hooks) {
  const std::string api = fmt::format("{}/api/models/{}", hub.endpoint, repo);
  HttpAnswer answer;
  HubListing listing;
  std::string escaped = escaped_path(revision);  // whose slashes are part of one name
  for (size_t at = 0; (at = escaped.find('/', at)) != std::string::npos;)
    escaped.replace(at, 1, "%2F");
  const std::string about =
      get_text(hub, repo, fmt::format("{}/revision/{}", api, escaped), hooks, answer);
  listing.commit = Json::parse(about, "the hub's answer").at("sha").as_string();
  if (!is_hexadecimal(listing.commit, 40)) fail_input(repo, "the hub names no commit");
  std::string url = fmt::format("{}/tree/{}?recursive=true", api, listing.commit);
  for (unsigned pages = 0; !url.empty(); url = next_page(url, answer)) {
    if (++pages > kMostPages) fail_input(repo, "has more than {} pages of files", kMostPages);
    const std::string page = get_text(hub, repo, url, hooks, answer);
    Json::parse(page, "the hub's answer").for_each_element([&](size_t, const Json& entry) {
      if (entry.at("type").as_string() == "file") listing.files.push_back(file_of(entry, repo));
    });
  }
  return listing;
}

std::string file_url(const Hub& hub, const std::string& repo, const std::string& commit,
                     const std::string& path) {
  return fmt::format("{}/{}/resolve/{}/{}", hub.endpoint, repo, commit, escaped_path(path));
}

void refuse(const Hub& hub, const std::string& repo, const std::string& what,
            const HttpAnswer& answer) {
  const std::string place = what.empty() ? repo : fmt::format("{}: {}", repo, what);
  const std::string page = fmt::format("{}/{}", hub.endpoint, repo);
  const std::string code = answer.header("x-error-code");
  const std::string message = answer.header("x-error-message");
  const bool has_token = !hub.token.empty();
  const auto fail = [&](const std::string& fact, const std::string& hint) {
    throw Error(ErrorCode::input, place, fact, hint);
  };
  if (answer.is_unresolved)
    throw Error(ErrorCode::input, hub.endpoint, reason_of(answer), kNoNetwork);
  if (answer.status < 400) fail(reason_of(answer), "");
  if (answer.status == 401 && message.starts_with("Invalid"))
    fail("the hub does not accept the token", "make a new one and put it into HF_TOKEN");
  if (code == "GatedRepo")
    fail("the hub gives this repository only to people whom it knows",
         has_token ? fmt::format("ask for access on {}, with the account of your token", page)
                   : fmt::format("ask for access on {}, and set HF_TOKEN to your token", page));
  if (code == "RevisionNotFound")
    fail("the repository has no such revision", fmt::format("{}/tree/main shows them", page));
  if (code == "EntryNotFound")
    fail("the repository has no such file", fmt::format("{}/tree/main shows them", page));
  if (code == "RepoNotFound" || answer.status == 401 || answer.status == 404)
    fail("the hub has no such repository, or it is private",
         has_token ? "check the name; a private one needs a token of an account that may read it"
                   : "check the name; for a private one set HF_TOKEN");
  throw Error(ErrorCode::input, place, reason_of(answer), fmt::format("see {}", page));
}

void check_interrupted(const HubHooks& hooks) {
  if (hooks.is_interrupted && hooks.is_interrupted()) throw PullInterrupted{};
}

void pause(std::chrono::milliseconds time, const HubHooks& hooks) {
  constexpr std::chrono::milliseconds kSlice(100);
  for (; time.count() > 0; time -= std::min(time, kSlice)) {
    check_interrupted(hooks);
    std::this_thread::sleep_for(std::min(time, kSlice));
  }
}

}  // namespace tyto

// Templates of the fused decode: decode_L<W> and decode_L<W-1> for each window W.
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/joined.h"
#include "device/npu/formats/air_abi.h"
#include "device/npu/store/build_folder.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTemplates = 4096;
constexpr const char* kBuildAgain = "`make compile-decode` there, or `make compile-decode-windows`";

fs::path template_path(const fs::path& folder, uint32_t length, ImageKind kind) {
  return folder / fmt::format("decode_L{}{}", length, extension(kind));
}

// The n of every decode_L<n>.xclbin and decode_L<n>.insts.bin.
std::set<uint32_t> find_templates(BuildFolder& found, const fs::path& folder) {
  constexpr std::string_view kPrefix = "decode_L";
  std::set<uint32_t> lengths;
  std::error_code listing;
  for (fs::directory_iterator at(folder, listing), last; !listing && at != last;
       at.increment(listing)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("decode_dyn_L") && name.ends_with(extension(ImageKind::xclbin)))
      found.notes.push_back(
          fmt::format("left out {}: its instruction words come from a C++ header that the build "
                      "wrote, which Tyto does not compile; `make compile-decode` builds templates",
                      name));
    if (!name.starts_with(kPrefix)) continue;
    uint32_t length = 0;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, length);
    const std::string_view suffix(rest, static_cast<size_t>(end - rest));
    if (error != std::errc() || length == 0) continue;
    if (suffix == extension(ImageKind::xclbin) || suffix == extension(ImageKind::insts))
      lengths.insert(length);
    if (lengths.size() > kMaxTemplates)
      fail_input(folder.string(), "more than {} decode templates", kMaxTemplates);
  }
  if (listing) fail_input(folder.string(), "cannot list: {}", listing.message());
  return lengths;
}

std::set<uint32_t> stamped_windows(const fs::path& stamp) {
  std::set<uint32_t> windows;
  const std::string text = read_text_file(stamp, kBuildTextLimit);
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at != end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) ++at;
    if (at == end) return windows;
    uint32_t window = 0;
    const auto [rest, error] = std::from_chars(at, end, window);
    if (error != std::errc() || window < 2)
      fail_input(stamp.string(), "not a list of window lengths");
    windows.insert(window);
    at = rest;
  }
}

// `make clean` leaves the stamp where it is, and `make compile-decode` then builds one window.
std::set<uint32_t> built_windows(BuildFolder& found, const fs::path& stamp,
                                 const std::set<uint32_t>& templates) {
  std::set<uint32_t> built, missing;
  for (const uint32_t window : stamped_windows(stamp))
    (templates.contains(window) || templates.contains(window - 1) ? built : missing).insert(window);
  const auto text = [](uint32_t window) { return std::to_string(window); };
  if (built.empty() && templates.empty())
    throw Error(ErrorCode::input, stamp.string(),
                fmt::format("names windows {}, and no templates are there: `make clean` leaves "
                            "this file",
                            joined(missing, ", ", text)),
                kBuildAgain);
  if (!missing.empty())
    found.notes.push_back(
        fmt::format("{} also names windows {}, whose templates are not there; "
                    "`make compile-decode-windows` builds them",
                    stamp.string(), joined(missing, ", ", text)));
  return built;
}

// Every template belongs to the pair of one window; anything else is left over from another build.
std::set<uint32_t> windows_of(BuildFolder& found, const fs::path& folder,
                              const std::set<uint32_t>& templates) {
  const fs::path stamp = folder / ".decode_windows";
  const bool stamped = is_there(stamp);
  std::set<uint32_t> windows =
      stamped ? built_windows(found, stamp, templates) : std::set<uint32_t>();
  std::set<uint32_t> paired;
  for (auto at = templates.rbegin(); at != templates.rend(); ++at) {
    const uint32_t length = *at;
    if (paired.contains(length)) continue;
    if (!stamped && templates.contains(length - 1)) windows.insert(length);
    const std::string where = (folder / fmt::format("decode_L{}", length)).string();
    const bool is_reference = windows.contains(length + 1);
    if (!windows.contains(length) && !is_reference && stamped)
      throw Error(ErrorCode::input, where,
                  "not of a window in .decode_windows; left over from another build?",
                  "delete it, or build the windows again");
    if (!windows.contains(length) && !is_reference)
      throw Error(ErrorCode::input, where,
                  fmt::format("has no partner decode_L{}: instruction words are derived from two "
                              "builds",
                              length - 1),
                  kBuildAgain);
    paired.insert({length, length - 1});
  }
  return windows;
}

std::string decode_flags(const fs::path& folder) {
  const fs::path path = folder / ".decode_flags";
  if (!is_there(path)) return std::string(kFlagsNotRecorded);
  std::string text = read_text_file(path, kBuildTextLimit);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r'))
    text.pop_back();
  return text;
}

}  // namespace

void find_fused_decode(BuildFolder& found, const fs::path& folder) {
  const std::set<uint32_t> templates = find_templates(found, folder);
  if (templates.empty() && !is_there(folder / ".decode_windows")) return;
  const std::string flags = decode_flags(folder);
  for (const uint32_t window : windows_of(found, folder, templates)) {
    FoundKernel kernel;
    kernel.program = kFusedDecode;
    kernel.folder = folder;
    kernel.window = window;
    kernel.flags = flags;
    for (const uint32_t length : {window, window - 1})
      for (const ImageKind kind : {ImageKind::xclbin, ImageKind::insts})
        kernel.images.push_back(read_image_file(template_path(folder, length, kind), kind, length));
    found.kernels.push_back(std::move(kernel));
  }
}

}  // namespace tyto

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <list>
#include <set>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/hash.h"
#include "base/joined.h"
#include "base/json.h"
#include "base/utc_time.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/int8_gemm.h"
#include "device/npu/formats/q4nx_layout.h"
#include "device/npu/store/kernel_store.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kImageLimit = uint64_t{256} << 20;
constexpr uint64_t kTextLimit = uint64_t{1} << 20;
constexpr size_t kMaxTemplates = 4096;
constexpr const char* kGemmSlotsFile = "gemm_slots.json";

// What will be recorded, and where the bytes of each image are now.
struct Planned {
  KernelEntry entry;
  std::vector<fs::path> sources;  // one for each of entry.images
};

struct Plan {
  const ImportOptions& options;
  std::string imported_at;
  std::vector<Planned> items;
  std::vector<std::string> notes;
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Images compiled for another prompt length are other kernels with the same file names.
std::string entry_name(const ImportOptions& options, std::string_view kernel) {
  const bool usual = options.dims.seq == kLlama32_1b.seq;
  return fmt::format("{}{}/{}", options.shape, usual ? "" : fmt::format("@{}", options.dims.seq),
                     kernel);
}

KernelEntry new_entry(const Plan& plan, std::string_view kernel, const AirProgram& program,
                      const fs::path& folder) {
  KernelEntry entry;
  entry.name = entry_name(plan.options, kernel);
  entry.program = program.name;
  entry.entry = program.entry;
  entry.shape = plan.options.shape;
  entry.dims = plan.options.dims;
  entry.arguments = static_cast<uint32_t>(program.arguments.size());
  entry.launches = program.launches;
  entry.source = fs::absolute(folder).lexically_normal().string();
  entry.imported_at = plan.imported_at;
  return entry;
}

// Reads, checks and hashes one file.
ImageFacts add_image(Planned& item, const fs::path& path, ImageKind kind, uint32_t length) {
  const std::string content = read_text_file(path, kImageLimit);
  const ImageFacts facts = inspect_image(bytes_of(content), kind, path.string());
  StoredImage image;
  image.kind = kind;
  image.length = length;
  image.bytes = content.size();
  image.hash = to_hex(hash_bytes(bytes_of(content)));
  item.entry.images.push_back(std::move(image));
  item.sources.push_back(path);
  return facts;
}

// "llvm-aie: 21.0; clang: 123:456": nobody compares it, people read it.
std::string toolchain_text(const Json& value) {
  switch (value.type()) {
    case Json::Type::string:
      return std::string(value.as_string());
    case Json::Type::integer:
      return std::to_string(value.as_int());
    case Json::Type::number:
      return fmt::format("{}", value.as_double());
    case Json::Type::boolean:
      return value.as_bool() ? "true" : "false";
    case Json::Type::null:
      return "null";
    case Json::Type::array:
    case Json::Type::object:
      break;
  }
  std::vector<std::string> parts;
  if (value.is(Json::Type::object))
    value.for_each_member([&](std::string_view key, const Json& member) {
      parts.push_back(fmt::format("{}: {}", key, toolchain_text(member)));
    });
  else
    value.for_each_element(
        [&](size_t, const Json& member) { parts.push_back(toolchain_text(member)); });
  return joined(parts, "; ");
}

void plan_cache_entry(Plan& plan, const fs::path& folder, std::string_view kernel,
                      const Json& record, const std::string& toolchain) {
  if (!is_air_program(kernel)) {
    plan.notes.push_back(fmt::format("left out {} of {}: no argument list is known for it", kernel,
                                     folder.string()));
    return;
  }
  const AirProgram program = air_program(kernel, plan.options.dims);
  // A wrong instance name does not fail to load; the device hangs.
  const Json asked = record.at("kernel");
  if (asked.as_string() != program.entry)
    asked.fail(fmt::format("\"{}\" is not \"{}\", the entry Tyto knows for this program",
                           asked.as_string(), program.entry));
  if (const auto insts = record.find("insts"))
    insts->fail("an ELF with separate instruction words is not one that MLIR-AIR's Llama builds");
  // The path was relative to wherever the build ran; the file lies beside its manifest.
  const fs::path file = fs::path(record.at("output_binary").as_string()).filename();
  if (file.empty()) record.at("output_binary").fail("names no file");
  Planned item{new_entry(plan, kernel, program, folder), {}};
  item.entry.toolchain = toolchain;
  item.entry.platform = add_image(item, folder / file, ImageKind::elf, 0).platform;
  plan.items.push_back(std::move(item));
}

void plan_cache(Plan& plan, const fs::path& folder) {
  const fs::path path = folder / "manifest.json";
  const Json manifest = Json::parse_file(path.string(), kTextLimit);
  const auto recorded = manifest.find("_toolchain");
  const std::string toolchain = recorded ? toolchain_text(*recorded) : "unknown";
  manifest.at("entries").for_each_member([&](std::string_view kernel, const Json& record) {
    plan_cache_entry(plan, folder, kernel, record, toolchain);
  });
}

// The n of every decode_L<n>.xclbin and decode_L<n>.insts.bin.
std::set<uint32_t> find_templates(Plan& plan, const fs::path& folder) {
  constexpr std::string_view kPrefix = "decode_L";
  std::set<uint32_t> found;
  std::error_code listing;
  for (fs::directory_iterator at(folder, listing), last; !listing && at != last;
       at.increment(listing)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("decode_dyn_L") && name.ends_with(extension(ImageKind::xclbin)))
      plan.notes.push_back(
          fmt::format("left out {}: builds with a dynamic length are not supported", name));
    if (!name.starts_with(kPrefix)) continue;
    uint32_t length = 0;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, length);
    const std::string_view suffix(rest, static_cast<size_t>(end - rest));
    if (error != std::errc() || length == 0) continue;
    if (suffix == extension(ImageKind::xclbin) || suffix == extension(ImageKind::insts))
      found.insert(length);
    if (found.size() > kMaxTemplates)
      fail_input(folder.string(), "more than {} decode templates", kMaxTemplates);
  }
  if (listing) fail_input(folder.string(), "cannot list: {}", listing.message());
  return found;
}

std::set<uint32_t> stamped_windows(const fs::path& stamp) {
  std::set<uint32_t> windows;
  const std::string text = read_text_file(stamp, kTextLimit);
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

// Every template belongs to the pair of one window; anything else is left over from another build.
std::set<uint32_t> windows_of(const fs::path& folder, const std::set<uint32_t>& templates) {
  const fs::path stamp = folder / ".decode_windows";
  const bool stamped = is_there(stamp);
  std::set<uint32_t> windows = stamped ? stamped_windows(stamp) : std::set<uint32_t>();
  std::set<uint32_t> paired;
  for (auto at = templates.rbegin(); at != templates.rend(); ++at) {
    const uint32_t length = *at;
    if (paired.contains(length)) continue;
    if (!stamped && templates.contains(length - 1)) windows.insert(length);
    const std::string where = (folder / fmt::format("decode_L{}", length)).string();
    if (!windows.contains(length) && stamped)
      fail_input(where, "not of a window in .decode_windows; left over from another build?");
    if (!windows.contains(length))
      fail_input(where, "has no partner decode_L{}: instruction words are derived from two builds",
                 length - 1);
    paired.insert({length, length - 1});
  }
  return windows;
}

std::string decode_flags(const fs::path& folder) {
  const fs::path path = folder / ".decode_flags";
  if (!is_there(path)) return "not recorded";
  std::string text = read_text_file(path, kTextLimit);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r'))
    text.pop_back();
  // With one channel the weights lie in another order.
  if (text != "W_DUAL_CHAN=1")
    throw Error(ErrorCode::unsupported, path.string(),
                "\"" + text + "\" is not \"W_DUAL_CHAN=1\", the only weight order Tyto packs",
                "build again with W_DUAL_CHAN=1");
  return text;
}

void plan_window(Plan& plan, const fs::path& folder, uint32_t window, const std::string& flags) {
  const AirProgram program = fused_decode_program(plan.options.dims, window);
  Planned item{new_entry(plan, fmt::format("decode_L{}", window), program, folder), {}};
  item.entry.window = window;
  item.entry.flags = flags;
  item.entry.toolchain = "unknown";
  uint64_t words[2] = {};
  for (const uint32_t back : {0u, 1u}) {
    const std::string stem = fmt::format("decode_L{}", window - back);
    const auto path = [&](ImageKind kind) {
      return folder / (stem + std::string(extension(kind)));
    };
    item.entry.platform =
        add_image(item, path(ImageKind::xclbin), ImageKind::xclbin, window - back).platform;
    words[back] = add_image(item, path(ImageKind::insts), ImageKind::insts, window - back).words;
  }
  if (words[0] != words[1])
    fail_input((folder / fmt::format("decode_L{}.insts.bin", window)).string(),
               "{} instruction words, but decode_L{} has {}: not two builds of one program",
               words[0], window - 1, words[1]);
  plan.items.push_back(std::move(item));
}

void plan_fused(Plan& plan, const fs::path& folder) {
  const std::set<uint32_t> templates = find_templates(plan, folder);
  if (templates.empty() && !is_there(folder / ".decode_windows")) return;
  const std::string flags = decode_flags(folder);
  for (const uint32_t window : windows_of(folder, templates))
    plan_window(plan, folder, window, flags);
}

// One xclbin and its instruction words for each K; they know nothing of a model's shape.
void plan_gemm_slot(Plan& plan, const fs::path& folder, const Json& record) {
  const auto count = [&](const char* field) {
    return static_cast<uint32_t>(record.at(field).as_uint(std::numeric_limits<uint32_t>::max()));
  };
  const auto file = [&](const char* field) {
    const fs::path name = fs::path(record.at(field).as_string());
    if (name.empty() || name != name.filename()) record.at(field).fail("is no file of this folder");
    return folder / name;
  };
  const GemmSlot slot{std::string(record.at("xclbin").as_string()), count("k"), count("m_tile"),
                      count("n_tile"), count("columns")};
  check_slots({&slot, 1});
  const AirProgram program = int8_gemm_program(slot.k, slot.m_tile, slot.n_tile);
  Planned item{new_entry(plan, "", program, folder), {}};
  item.entry.name = fmt::format("int8/gemm_k{}", slot.k);
  item.entry.shape = "any";
  item.entry.dims = {};
  item.entry.window = slot.k;
  item.entry.m_tile = slot.m_tile;
  item.entry.n_tile = slot.n_tile;
  item.entry.columns = slot.columns;
  item.entry.toolchain = "unknown";
  item.entry.platform = add_image(item, file("xclbin"), ImageKind::xclbin, slot.k).platform;
  add_image(item, file("insts"), ImageKind::insts, slot.k);
  plan.items.push_back(std::move(item));
}

void plan_gemm_slots(Plan& plan, const fs::path& folder) {
  const fs::path path = folder / kGemmSlotsFile;
  if (!is_there(path)) return;
  const Json slots = Json::parse_file(path.string(), kTextLimit).at("slots");
  slots.for_each_element([&](size_t, const Json& record) { plan_gemm_slot(plan, folder, record); });
}

void plan_folder(Plan& plan, const fs::path& folder) {
  if (!is_folder(folder)) fail_input(folder.string(), "not a folder");
  if (is_there(folder / "manifest.json")) plan_cache(plan, folder);
  for (const fs::path& root : {folder, folder / "build_peano"})
    for (const char* cache : {"prefill_kernel_cache", "decode_kernel_cache"})
      if (is_folder(root / cache)) plan_cache(plan, root / cache);
  plan_fused(plan, folder);
  plan_gemm_slots(plan, folder);
  std::set<std::string> names;
  for (const Planned& item : plan.items)
    if (!names.insert(item.entry.name).second)
      throw Error(ErrorCode::input, folder.string(), item.entry.name + " is in it twice",
                  "import one build at a time");
  if (!plan.items.empty()) return;
  throw Error(ErrorCode::input, folder.string(),
              "no kernels: neither a manifest.json of a kernel cache that names a known program, "
              "nor decode_L<W>.xclbin templates, nor a gemm_slots.json",
              "see `tyto kernels import --help`");
}

int64_t mtime_ns(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) fail_input(path.string(), "cannot stat");
  return status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
}

bool holds(const fs::path& path, const StoredImage& image) {
  if (!is_there(path)) return false;
  const MappedFile file(path);
  return file.bytes().size() == image.bytes && to_hex(hash_bytes(file.bytes())) == image.hash;
}

// Copies of images that were not in the store; gone again unless kept.
struct NewFiles {
  std::vector<fs::path> paths;
  std::list<PartialPath> unrecorded;  // the same, until the manifest speaks of them
  bool keep = false;
  ~NewFiles() {
    std::error_code ignored;
    if (!keep)
      for (const fs::path& path : paths) fs::remove(path, ignored);
  }
};

void copy_image(const fs::path& store, const fs::path& source, StoredImage& image,
                NewFiles& created) {
  const fs::path target = image_path(store, image);
  if (!holds(target, image)) {
    const std::string content = read_text_file(source, kImageLimit);
    if (to_hex(hash_bytes(bytes_of(content))) != image.hash)
      fail_input(source.string(), "changed while it was imported");
    AtomicFile file(target, Replace::own_state);
    file.write(content);
    created.paths.push_back(target);
    created.unrecorded.emplace_back(target.string());
    file.commit();
  }
  image.mtime_ns = mtime_ns(target);
}

}  // namespace

ImportReport import_kernels(const fs::path& store, const fs::path& folder,
                            const ImportOptions& options) {
  Plan plan{options, utc_now(), {}, {}};
  plan_folder(plan, folder);
  read_manifest(store);  // a damaged one is reported before anything is created

  std::error_code error;
  fs::create_directories(store / "images", error);
  if (error) fail_input((store / "images").string(), "cannot create: {}", error.message());
  const FileLock lock(lock_path(store));
  KernelManifest manifest = read_manifest(store);
  NewFiles created;
  std::vector<KernelEntry> replaced;
  ImportReport report;
  for (Planned& item : plan.items) {
    for (size_t i = 0; i < item.sources.size(); ++i)
      copy_image(store, item.sources[i], item.entry.images[i], created);
    const auto old =
        std::find_if(manifest.entries.begin(), manifest.entries.end(),
                     [&](const KernelEntry& entry) { return entry.name == item.entry.name; });
    if (old != manifest.entries.end()) {
      replaced.push_back(std::move(*old));
      manifest.entries.erase(old);
    }
    manifest.entries.push_back(item.entry);
    report.entries.push_back(std::move(item.entry));
  }
  const auto gemms =
      std::count_if(manifest.entries.begin(), manifest.entries.end(),
                    [](const KernelEntry& entry) { return entry.program == kInt8Gemm; });
  if (gemms > static_cast<ptrdiff_t>(kMaxGemmSlots))
    throw Error(ErrorCode::input, folder.string(),
                fmt::format("with these there would be {} int8 GEMMs, and at most {} are used",
                            gemms, kMaxGemmSlots),
                "`tyto kernels rm` those of another K first");
  created.unrecorded.clear();
  write_manifest(store, manifest);
  created.keep = true;
  report.images_written = created.paths.size();
  report.notes = std::move(plan.notes);
  delete_unused_images(store, replaced, manifest);
  return report;
}

}  // namespace tyto

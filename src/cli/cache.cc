// cache: packed weights that are kept, so that a model is ready sooner.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/weight_cache.h"
#include "model/model.h"
#include "model/stores/stores.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

struct AddFlags {
  std::string model;
  uint64_t limit = uint64_t{20} << 30;  // bytes
  unsigned threads = 0;
};

struct CacheListFlags {
  JsonFlag json;
};

struct ClearFlags {
  bool stale = false;
};

// Those that the CPU's kernels multiply by and that lie in this file of the model's.
std::vector<TensorView> matrices_in(const MappedFile& file, const Model& model) {
  std::vector<TensorView> result;
  const auto add = [&](const TensorView& view) {
    const std::byte* first = file.bytes().data();
    if (cpu::can_pack(view.dtype) && view.bytes.data() >= first &&
        view.bytes.data() < first + file.bytes().size())
      result.push_back(view);
  };
  for (const LayerWeights& layer : model.weights.layers)
    for (const TensorView* view :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down,
          &layer.router, &layer.conv_gate, &layer.conv_x, &layer.conv_out_gate})
      if (!view->empty()) add(*view);
  add(model.weights.head);
  return result;
}

void check_disk(const fs::path& folder, uint64_t wanted) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return;  // then the writing says what is wrong
  const uint64_t reserve = space.capacity / 20;
  if (space.available < wanted + reserve)
    throw Error(ErrorCode::input, folder.string(),
                fmt::format("{} are free, and {} with a twentieth of the disk to spare are wanted",
                            human_bytes(space.available), human_bytes(wanted)),
                "`tyto cache clear` removes what is kept there");
}

void check_huge_pages(const fs::path& path, const MappedFile& source, ThreadPool& pool) {
  const cpu::PackedFile packed(path, source, pool);
  if (cpu::is_in_huge_pages(packed.body())) return;
  std::error_code ignored;
  fs::remove(path, ignored);
  throw Error(ErrorCode::unsupported, path.string(),
              "this system maps its pages one by one, which would slow every token, so it is not "
              "kept",
              "ext4 has huge pages for files since Linux 6.16, xfs and btrfs for longer");
}

bool is_kept(const fs::path& path, const MappedFile& source, ThreadPool& pool) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return false;
  try {
    const cpu::PackedFile packed(path, source, pool);
    return cpu::is_in_huge_pages(packed.body());
  } catch (const Error& error) {
    note(fmt::format("note: {}; it is written again", error.what()));
    return false;
  }
}

void add_file(const MappedFile& source, const Model& model, const fs::path& folder, uint64_t limit,
              ThreadPool& pool) {
  const std::vector<TensorView> matrices = matrices_in(source, model);
  if (matrices.empty())
    return note(fmt::format("{} has no matrices that are packed", source.path().string()));
  const fs::path path = cpu::kept_path(folder, source.stamp());
  if (is_kept(path, source, pool))
    return note(fmt::format("{} is kept already", source.path().string()));
  const uint64_t wanted = cpu::packed_file_bytes(matrices);
  for (const cpu::KeptFile& removed : cpu::make_room(folder, wanted, limit))
    note(fmt::format("removed the packed weights of {} ({})", removed.source,
                     human_bytes(removed.bytes)));
  check_disk(folder, wanted);
  const uint64_t bytes = cpu::write_packed_file(path, source, matrices, pool, progress_bar());
  check_huge_pages(path, source, pool);
  note(fmt::format("kept {} of {} ({})",
                   matrices.size() == 1 ? "1 matrix" : fmt::format("{} matrices", matrices.size()),
                   source.path().string(), human_bytes(bytes)));
}

void add(const AddFlags& flags) {
  if (cpu::best_inner_loops().packed == nullptr)
    throw Error(ErrorCode::unsupported, "cache add",
                "this processor uses weights as files have them");
  const Model model =
      open_model(find_model(model_or_shipped(flags.model)), Need::weights, progress_bar());
  const fs::path folder = cpu::weight_cache_folder();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_input(folder.string(), "cannot be made: {}", error.message());
  const auto lock = FileLock::try_take(folder / "lock");
  if (lock == nullptr)
    throw Error(ErrorCode::input, folder.string(), "another `tyto cache add` is at work",
                "wait for it to end, and try again");
  ThreadPool pool(flags.threads);
  for (const MappedFile& file : model.files) add_file(file, model, folder, flags.limit, pool);
}

std::string state_of(const cpu::KeptFile& file) {
  const std::string state = file.stale.empty() ? "good" : file.stale;
  return file.is_in_use ? state + ", in use" : state;
}

void list_cache(const CacheListFlags& flags) {
  const fs::path folder = cpu::weight_cache_folder();
  const std::vector<cpu::KeptFile> files = cpu::kept_files(folder);
  if (flags.json.is_given()) {
    JsonValue rows = JsonValue::array();
    for (const cpu::KeptFile& file : files)
      rows.push_back({{"file", file.path.string()},
                      {"source", file.source},
                      {"bytes", file.bytes},
                      {"last_used", utc_time(file.used_ns / 1'000'000'000)},
                      {"stale", file.stale},
                      {"in_use", file.is_in_use}});
    const std::string text = rows.dump(2);
    if (put_json(flags.json, text + "\n")) return;
  }
  if (files.empty())
    return note(
        fmt::format("no packed weights in {}; see `tyto cache add --help`", folder.string()));
  Table table{.id = "cache",
              .title = "",
              .columns = {{"made of", false}, {"size"}, {"last used", false, 1}, {"state", false}}};
  for (const cpu::KeptFile& file : files)
    table.rows.push_back(
        {{file.source.empty() ? file.path.filename().string() : file.source,
          human_bytes(file.bytes), utc_time(file.used_ns / 1'000'000'000), state_of(file)}});
  print_coloured(to_text(table, stdout_style()));
}

void clear(const ClearFlags& flags) {
  const fs::path folder = cpu::weight_cache_folder();
  uint64_t bytes = 0, held = 0, count = 0;
  for (const cpu::KeptFile& file : cpu::clear_kept(folder, flags.stale)) {
    (file.is_in_use ? held : bytes) += file.bytes;
    ++count;
  }
  note(fmt::format(
      "deleted {} from {}: {} freed{}", counted(count, "file"), folder.string(), human_bytes(bytes),
      held == 0
          ? ""
          : fmt::format(", {} more once the processes that use them end", human_bytes(held))));
}

void define_add(CommandLine& command) {
  AddFlags& flags = command.values<AddFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"--limit", size_target(flags.limit), "SIZE",
       "limit the cache folder, such as 512M or 20G; the least recently used goes first",
       Rules{.shows_default = true}},
      {"-t,--threads", &flags.threads, "N", "CPU threads (default: one per usable core)",
       Rules{.range = Range{1, 1024}}},
  });
  command.footer =
      "Commands that run the model on the CPU then start faster, and share the memory of its "
      "weights.\n\n"
      "Cached weights are checked byte by byte before use. If the model file has changed or the "
      "cached weights are damaged, the weights are packed again, and the receipt says so.\n\n"
      "Examples:\n  tyto cache add\n  tyto cache add -m model.gguf";
  command.run = [&flags] { add(flags); };
}

void define_cache_list(CommandLine& command) {
  CacheListFlags& flags = command.values<CacheListFlags>();
  add_json_flag(command, flags.json);
  command.footer = "Example:\n  tyto cache list";
  command.run = [&flags] { list_cache(flags); };
}

void define_clear(CommandLine& command) {
  ClearFlags& flags = command.values<ClearFlags>();
  command.add(
      {{"--stale", &flags.stale, "delete only weights that no model file can use any more"}});
  command.footer =
      "Running programs keep the weights that they use.\n\nExample:\n  tyto cache clear --stale";
  command.run = [&flags] { clear(flags); };
}

}  // namespace

void define_cache(CommandLine& command) {
  command.needs_command = true;
  command.footer = "Examples:\n  tyto cache list\n  tyto cache clear --stale";
  define_add(command.add_command("add", "pack and keep the weights of a model"));
  define_cache_list(
      command.add_command("list", "list cached weights, their source files and users"));
  define_clear(command.add_command("clear", "delete cached weights"));
}

}  // namespace tyto

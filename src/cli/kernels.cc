// kernels: the NPU kernel images that users build and Tyto keeps.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/formats/transaction.h"
#include "device/npu/store/kernel_store.h"
#include "llama/pipeline.h"
#include "model/synth.h"
#include "plan/build_advice.h"
#include "plan/kernel_tables.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/progress.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

// tyto kernels describe: what Tyto believes about the images of a model.
struct DescribeFlags {
  std::string shape = "llama-3.2-1b";
  uint32_t seq = kLlama32_1b.seq;
  uint32_t window = 2048;
  JsonFlag json;
};

void describe(const DescribeFlags& flags) {
  const AirDims dims = air_dims(model_dims(shape_by_name(flags.shape), 0), flags.seq);
  const AirModel model = air_model(dims);
  const std::optional<Q4nxLayout> decode = decode_layout(dims, flags.window);
  const bool is_published = known_air_model(dims) != nullptr;
  if (flags.json.is_given()) {
    JsonValue programs = JsonValue::array();
    for (const AirProgram& program : model.programs) programs.push_back(to_json(program));
    const JsonValue row = {
        {"schema", "tyto-kernels/1"},      {"shape", flags.shape},
        {"dims", to_json(dims)},           {"published", is_published},
        {"programs", std::move(programs)}, {"decode", decode ? to_json(*decode) : JsonValue()}};
    if (put_json(flags.json, row.dump(2) + "\n")) return;
  }
  if (!is_published)
    note("note: MLIR-AIR builds no bf16 images of this model; these follow the rules of others");
  print_prose(fmt::format("Kernels of {}, for prompts of {} rows; --shape names another model.\n\n",
                          flags.shape, flags.seq));
  std::vector<AirProgram> programs = model.programs;
  if (decode) programs.push_back(fused_decode_program(dims, flags.window));
  for (const AirProgram& program : programs)
    print_coloured(to_text(program_table(program), stdout_style()) + "\n");
}

void define_kernels_describe(CommandLine& command) {
  DescribeFlags& flags = command.values<DescribeFlags>();
  command.add({
      {"--shape", &flags.shape, OneOf(shape_names(), Letters::as_listed), "shape of the model",
       Rules{.shows_default = true}},
      {"--seq", &flags.seq, "N", "prompt length of the prefill kernels",
       Rules{.range = Range{64, 1 << 20}, .shows_default = true}},
      {"--window", &flags.window, "N", "context length of the decode in one dispatch",
       Rules{.range = Range{64, 1 << 20}, .shows_default = true}},
  });
  add_json_flag(command, flags.json);
  command.footer =
      "Lists every program and its arguments, in the order in which Tyto passes them to XRT. This "
      "is known from MLIR-AIR's sources; no compiled image has been compared with it.\n\n"
      "Example:\n  tyto kernels describe --shape llama-3.2-1b";
  command.run = [&flags] { describe(flags); };
}

std::string how_to_build() {
  return "MLIR-AIR is at github.com/Xilinx/mlir-air and needs its Peano compiler; compiling and "
         "importing need no NPU. `tyto compile --device npu -m MODEL` prints the commands. These "
         "programs are in MLIR-AIR's programming_examples:\n\n"
         "                 make compile         make compile-decode\n" +
         build_examples() +
         "\nint8 GEMMs come from mlir-aie's whole-array example, or from any folder of xclbins "
         "with "
         "a gemm_slots.json (docs/kernels.md).\n\n";
}

struct ImportFlags {
  std::string folder;
  std::string shape;
  uint32_t seq = 0;
};

struct CheckFlags {
  bool full = false;
  JsonFlag json;
};

struct RemoveFlags {
  std::string name;
  bool all = false;
};

std::filesystem::path store_folder() {
  return default_kernel_store();
}

NamedDims named_dims(const std::string& shape) {
  const Config config = shape_by_name(shape);
  return {shape, air_dims(model_dims(config, 0), kLlama32_1b.seq)};
}

// One shape, or all that images could be for.
std::vector<NamedDims> shapes_of(const std::string& name) {
  if (!name.empty()) return {named_dims(name)};
  std::vector<NamedDims> shapes;
  for (const std::string& known : shape_names())
    if (differences_from_llama(shape_by_name(known)).empty()) shapes.push_back(named_dims(known));
  return shapes;
}

bool has_same_images(const KernelEntry& one, const KernelEntry& other) {
  return std::ranges::equal(one.images, other.images, {}, &StoredImage::hash, &StoredImage::hash);
}

// The same images may be imported twice, once under a name that the user did not expect.
void note_second_names(const KernelManifest& before, const ImportReport& report) {
  std::vector<std::string> known, added;
  for (const KernelEntry& entry : report.entries)
    for (const KernelEntry& old : before.entries)
      if (old.name != entry.name && has_same_images(old, entry)) {
        known.push_back(old.name);
        added.push_back(entry.name);
        break;
      }
  if (known.empty()) return;
  note(
      fmt::format("note: {} of these were in the store already under another name ({} as {}); "
                  "`tyto kernels rm NAME` forgets one of the two",
                  counted(known.size(), "kernel"), added.front(), known.front()));
}

// Those that were taken are in the store by now.
void check_none_refused(const std::string& folder, const KernelManifest& before,
                        const ImportReport& report) {
  if (report.refused.empty()) return;
  for (const RefusedKernel& refused : report.refused) {
    const std::string next = refused.next_step.empty() ? "" : "; " + refused.next_step;
    const bool is_older_there = before.find(refused.name) != nullptr;
    note(fmt::format("refused {}: {}{}{}", refused.name, refused.reason, next,
                     is_older_there ? "; the one imported earlier stays" : ""));
  }
  throw Error(ErrorCode::input, folder,
              fmt::format("{} refused, {} imported", counted(report.refused.size(), "kernel"),
                          report.entries.size()),
              "build the refused ones again, then import the folder again");
}

void import_folder(const ImportFlags& flags) {
  ImportOptions options = {shapes_of(flags.shape)};
  if (flags.seq != 0) options.seq = flags.seq;
  announce("checking the images");
  const KernelManifest before = read_manifest(store_folder());
  const ImportReport report = import_kernels(store_folder(), flags.folder, options);
  for (const std::string& line : report.notes) note("note: " + line);
  print_coloured(to_text(kernel_table(report.entries), stdout_style()));
  note_second_names(before, report);
  size_t images = 0;
  for (const KernelEntry& entry : report.entries) images += entry.images.size();
  note(fmt::format("imported {} for {}: {}, {} new, into {}",
                   counted(report.entries.size(), "kernel"), report.entries.front().shape,
                   counted(images, "image"), report.images_written, store_folder().string()));
  check_none_refused(flags.folder, before, report);
}

std::string report_text(const JsonValue& json) {
  return json.dump(2) + "\n";
}

void list(const JsonFlag& json) {
  const KernelManifest manifest = read_manifest(store_folder());
  if (json.is_given()) {
    JsonValue rows = JsonValue::array();
    for (const KernelEntry& entry : manifest.entries)
      rows.push_back(to_json(entry, store_folder()));
    if (put_json(json, report_text(rows))) return;
  }
  if (manifest.entries.empty()) {
    note(
        fmt::format("no kernels in {}; see `tyto kernels import --help`", store_folder().string()));
  } else {
    print_coloured(to_text(kernel_table(manifest.entries), stdout_style()));
  }
}

void print_check(const CheckReport& report) {
  for (const ImageProblem& problem : report.problems) {
    const std::string row =
        fmt::format("{}: {} {}: {}", to_string(problem.fault),
                    problem.entry.empty() ? "-" : problem.entry, problem.file, problem.reason);
    print(printable_line(row) + "\n");
  }
  if (report.problems.empty())
    print(fmt::format("{} good: {} unchanged by size and time, {} hashed ({})\n",
                      counted(report.images, "image"), report.trusted, report.hashed,
                      human_bytes(report.bytes_read)));
}

void check_images(const CheckFlags& flags) {
  announce("checking the images");
  const CheckReport report = check_store(store_folder(), flags.full);
  if (!flags.json.is_given() || !put_json(flags.json, report_text(to_json(report))))
    print_check(report);
  if (!report.problems.empty())
    throw Error(ErrorCode::input, store_folder().string(),
                fmt::format("{} in {}", counted(report.problems.size(), "problem"),
                            counted(report.images, "recorded image")),
                "import the build folder again, or `tyto kernels rm`");
}

void remove(const RemoveFlags& flags) {
  if (flags.all == !flags.name.empty())
    throw Error(ErrorCode::usage, "tyto kernels rm", "give a NAME or --all");
  if (!flags.all) return remove_kernel(store_folder(), flags.name);
  note(fmt::format("deleted {} from {}", counted(remove_all_kernels(store_folder()), "image"),
                   store_folder().string()));
}

void define_import(CommandLine& command) {
  ImportFlags& flags = command.values<ImportFlags>();
  command.add({
      {"folder", &flags.folder, "DIR", "build folder of MLIR-AIR", Rules{.required = true}},
      {"--shape", &flags.shape, OneOf(shape_names(), Letters::as_listed),
       "model that the kernels were compiled for (default: the one they fit)"},
      {"--seq", &flags.seq, "N",
       "prompt length of the prefill kernels (default: from the folder's name, or 2048)",
       Rules{.range = Range{64, 1 << 20}}},
  });
  command.footer =
      "Checks every image of a build folder and records them. A folder with a bad image changes "
      "nothing.\n\n" +
      how_to_build() +
      "DIR is the example's folder, its build_peano, a kernel cache with a manifest.json, the "
      "folder "
      "with decode_L*.xclbin, or a folder of int8 GEMMs. Images are compared with the model's "
      "argument lists: entry, number of arguments, and how far DMAs reach into each.\n\n"
      "Examples:\n"
      "  tyto kernels import mlir-air/programming_examples/llms/llama32_1b\n"
      "  tyto kernels import mlir-air/programming_examples/fused_decode \\\n"
      "      --shape llama-3.2-1b";
  command.run = [&flags] { import_folder(flags); };
}

void define_kernel_list(CommandLine& command) {
  JsonFlag& json = command.values<JsonFlag>();
  add_json_flag(command, json);
  command.footer = "Example:\n  tyto kernels list --json";
  command.run = [&json] { list(json); };
}

void define_kernel_check(CommandLine& command) {
  CheckFlags& flags = command.values<CheckFlags>();
  command.add({{"--full", &flags.full, "read every image, also those of unchanged size and time"}});
  add_json_flag(command, flags.json);
  command.footer =
      "The exit code is 1 if an image is not what was imported.\n\nExample:\n  tyto kernels check "
      "--full";
  command.run = [&flags] { check_images(flags); };
}

void define_remove(CommandLine& command) {
  RemoveFlags& flags = command.values<RemoveFlags>();
  command.add({
      {"name", &flags.name, "NAME", "name from `tyto kernels list`"},
      {"--all", &flags.all, "remove all kernels, also if the list of them is damaged"},
  });
  command.footer = "Example:\n  tyto kernels rm llama-3.2-1b/o_ffn";
  command.run = [&flags] { remove(flags); };
}

}  // namespace

void define_kernels(CommandLine& command) {
  command.needs_command = true;
  command.footer =
      "Tyto ships no kernel images for the NPU: MLIR-AIR compiles them, on any machine.\n\n" +
      how_to_build() +
      "Examples:\n  tyto kernels import mlir-air/programming_examples/llms/llama32_1b\n"
      "  tyto kernels list\n  tyto kernels check --full\n"
      "  tyto kernels rm llama-3.2-1b/o_ffn";
  define_import(command.add_command("import", "check and record the images of a build folder"));
  define_kernel_list(command.add_command("list", "list recorded images"));
  define_kernel_check(command.add_command("check", "find outdated, cut or foreign images"));
  define_remove(command.add_command("rm", "delete a kernel and its images"));
  define_kernels_describe(
      command.add_command("describe", "show the arguments of a model's images"));
}

}  // namespace tyto

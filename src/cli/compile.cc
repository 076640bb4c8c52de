// compile: kernel images. For the virtual NPU they are written here; for the real one MLIR-AIR does
// it, and this says exactly how.
#include <algorithm>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/json_value.h"
#include "base/round_up.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "device/npu/store/kernel_store.h"
#include "device/vnpu/vnpu_device.h"
#include "llama/pipeline.h"
#include "model/model.h"
#include "model/stores/stores.h"
#include "plan/build_advice.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/progress.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kRowStep = 64;  // prefill kernels work on multiples of it

struct CompileFlags {
  std::string model;
  std::string device = "vnpu";
  uint32_t prompt_rows = 2048;
  uint32_t context = 0;
  std::string weights;
  std::string output;
  bool force = false;
};

constexpr FolderKind kImages = {
    "a folder of images", [](std::string_view file) {
      const auto parts = {
          ".elf",          ".xclbin",     ".insts.bin", "manifest.json", ".decode_windows",
          ".decode_flags", ".params.txt", ".maxl"};
      return std::any_of(parts.begin(), parts.end(),
                         [&](std::string_view part) { return file.ends_with(part); });
    }};

void write_bytes(const fs::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_text(const fs::path& path, const std::string& text) {
  write_bytes(path, std::as_bytes(std::span(text)));
}

// A folder as MLIR-AIR leaves it: the images, and a manifest beside them.
void write_cache(AtomicFolder& folder, const std::string& below, bool is_of_prompts,
                 const AirDims& dims, float eps) {
  JsonValue entries;
  for (const AirProgram& program : air_model(dims).programs) {
    if ((program.phase == AirPhase::prompt) != is_of_prompts) continue;
    const NpuImage image = virtual_image(dims, program.name, 0, eps);
    const std::string file = program.name + ".elf";
    write_bytes(folder.file(below + "/" + file), image.bytes);
    entries[program.name] = {{"output_binary", file}, {"kernel", image.kernel}, {"insts", nullptr}};
  }
  const JsonValue manifest = {{"_toolchain", {{"tyto", TYTO_VERSION}}}, {"entries", entries}};
  write_text(folder.file(below + "/manifest.json"), manifest.dump(2) + "\n");
}

void write_decode(AtomicFolder& folder, const AirDims& dims, uint32_t context) {
  std::string stamp;
  for (uint32_t window : decode_windows(context)) {
    const NpuImage image = virtual_image(dims, kFusedDecode, window, 0);
    for (bool is_base : {true, false}) {
      const auto stem = fmt::format("decode_L{}", is_base ? image.length : image.reference_length);
      write_bytes(folder.file(stem + ".xclbin"), image.bytes);
      const auto& words = is_base ? image.words : image.reference_words;
      write_bytes(folder.file(stem + ".insts.bin"), std::as_bytes(std::span(words)));
    }
    stamp += fmt::format("{}{}", stamp.empty() ? "" : " ", window);
  }
  write_text(folder.file(".decode_windows"), stamp + "\n");
  const uint32_t positions = decode_windows(context).back();
  write_bytes(folder.file("decode_scratchpad.elf"),
              virtual_image(dims, kFusedDecodeElf, positions, 0).bytes);
  write_text(folder.file("decode_scratchpad.params.txt"),
             decode_parameters_text(q4nx_layout(dims, positions)));
  write_text(folder.file("decode_scratchpad.maxl"), fmt::format("{}\n", positions));
  write_text(folder.file(".decode_flags"), "W_DUAL_CHAN=1\n");
}

void compile_for_vnpu(const CompileFlags& flags, const Config& config, const std::string& name,
                      const AirDims& dims) {
  announce("compiling kernels");
  const bool is_own = flags.output.empty();
  const fs::path folder = is_own ? cache_folder() / "compiled" / name : fs::path(flags.output);
  AtomicFolder images(folder, is_own ? Replace::own_state : replacing(flags.force), kImages);
  write_cache(images, "prefill_kernel_cache", true, dims, config.norm_eps);
  write_cache(images, "decode_kernel_cache", false, dims, config.norm_eps);
  write_decode(images, dims, flags.context == 0 ? config.context : flags.context);
  images.commit();
  const ImportReport report =
      import_kernels(default_kernel_store(), folder, {{{name + "@vnpu", dims}}});
  for (const std::string& line : report.notes) note("note: " + line);
  TYTO_ASSERT(report.refused.empty());
  for (const KernelEntry& entry : report.entries)
    print(fmt::format("{:<32} {:<20} {:>12}, {:>11}\n", printable_line(entry.name),
                      printable_line(entry.entry), counted(entry.arguments, "argument"),
                      counted(entry.launches, "launch")));
  note(
      fmt::format("compiled {} of {} for the virtual NPU into {} and imported them: --device vnpu "
                  "now loads them; `tyto kernels rm --all` removes them",
                  counted(report.entries.size(), "kernel"), name, folder.string()));
}

void run_compile(const CompileFlags& flags) {
  const std::string path = model_or_shipped(flags.model);
  const Model model = open_model(find_model(path), Need::vocabulary);
  const Config& config = model.config;
  const uint32_t context = flags.context == 0 ? config.context : flags.context;
  const uint32_t rows = std::min(context, flags.prompt_rows);
  const AirDims dims =
      air_dims(model_dims(config, 0), static_cast<uint32_t>(round_up(rows, kRowStep)));
  const fs::path normal = fs::path(path).lexically_normal();
  const std::string name =
      normal.has_filename() ? normal.stem().string() : normal.parent_path().filename().string();
  if (flags.device == "npu") return print(build_advice(dims, flags.weights));
  if (!flags.weights.empty())
    throw Error(ErrorCode::usage, "--weights", "chooses what --device npu explains",
                "images for the virtual NPU are of bf16 and of q4nx");
  compile_for_vnpu(flags, config, name, dims);
}

}  // namespace

void define_compile(CommandLine& command) {
  CompileFlags& flags = command.values<CompileFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"--device", &flags.device, OneOf{"vnpu", "npu"},
       "vnpu: write images; npu: print how to build them", Rules{.shows_default = true}},
      {"--prompt-rows", &flags.prompt_rows, "N", "rows of the prefill kernels",
       Rules{.range = Range{64, 65536}, .shows_default = true}},
      {"--weights", &flags.weights, OneOf{"bf16", "q4nx", "int8"},
       "weight type of --device npu (default: bf16 and q4nx)"},
      {"-c,--context", &flags.context, "N",
       "context length of the fused decode (default: the model's, at most 2048)",
       Rules{.range = Range{1, 1 << 30}}},
      {"-o,--output", &flags.output, "DIR", "write the images to this folder"},
      force_flag(flags.force, {"--output"}),
  });
  command.footer =
      "Images for the virtual NPU follow MLIR-AIR's calling convention. vnpu works without them, "
      "too; with them it loads and checks images as the real NPU does.\n\n"
      "Examples:\n  tyto compile\n  tyto compile --device npu -m MODEL";
  command.run = [&flags] { run_compile(flags); };
}

}  // namespace tyto

#include "doctor/doctor_probe.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "device/npu/store/kernel_store.h"
#include "model/model.h"
#include "model/stores/find_model.h"

namespace tyto {
namespace {

// Where an image does not say what a run of it holds, its file's size stands for it. Of the two
// templates of a decode only one is loaded.
ImageBytes held_by(const KernelEntry& entry) {
  if (entry.run_bytes > 0) return {entry.program, entry.run_bytes, false};
  uint32_t longest = 0;
  for (const StoredImage& image : entry.images) longest = std::max(longest, image.length);
  ImageBytes held{entry.program};
  for (const StoredImage& image : entry.images)
    if (image.length == longest) held.bytes += image.bytes;
  return held;
}

void plan_heap(const KernelManifest& manifest, KernelCacheFacts& facts) {
  std::map<std::string, std::vector<ImageBytes>> models;
  for (const KernelEntry& entry : manifest.entries)
    if (entry.platform != kVirtualPlatform) models[entry.shape].push_back(held_by(entry));
  for (const auto& [model, images] : models) {
    const HeapPlan plan = npu_heap(images);
    if (plan.bytes <= facts.heap.bytes) continue;
    facts.largest_model = model;
    facts.heap = plan;
  }
}

}  // namespace

KernelCacheFacts probe_kernel_cache(const std::filesystem::path& store) {
  KernelCacheFacts facts;
  facts.folder = store.string();
  try {
    const CheckReport report = check_store(store, false);
    facts.images = report.images;
    plan_heap(read_manifest(store), facts);
    for (const ImageProblem& problem : report.problems)
      facts.problems.push_back(fmt::format("{} {}: {}", to_string(problem.fault),
                                           problem.entry.empty() ? problem.file : problem.entry,
                                           problem.reason));
  } catch (const Error& error) {
    facts.problems.push_back(error.what());
  }
  return facts;
}

ModelFacts probe_model(const std::string& name) {
  ModelFacts facts;
  facts.name = name;
  try {
    const Model model = open_model(find_model(name));
    facts.format = model.format;
    facts.weight_bytes = model.weight_bytes();
  } catch (const Error& error) {
    facts.error = error.what();
    facts.hint = error.hint;
  }
  return facts;
}

}  // namespace tyto

// What a GPU keeps: weights once, compiled kernels on disk, and what it says when it cannot.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "device/vulkan/vulkan_device.h"
#include "support/expect_error.h"
#include "unit/device/software_gpu_fixture.h"

namespace tyto::vulkan {
namespace {

using testing_support::software_gpu;

class VulkanMemory : public testing::Test {
 protected:
  VulkanMemory() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~VulkanMemory() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<Gpu> open(const std::filesystem::path& file = {}) {
    return std::make_shared<Gpu>(software_gpu().at("gpu"), file);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("tyto-vulkan-{}", ::getpid());
};

TEST_F(VulkanMemory, HoldsAWeightOnce) {
  const auto gpu = open();
  gpu->context->facts.has_host_memory = false;  // so that bytes travel
  const testing_support::Bytes bytes(33 * 64 * 2);
  const TensorView view{DType::f16, 33, 64, bytes};
  const auto first = gpu->weights.matrix(view, WeightForm::f16);
  const uint64_t submissions = gpu->transfers.submissions();
  EXPECT_GT(submissions, 0u);
  EXPECT_EQ(gpu->weights.matrix(view, WeightForm::f16), first);
  EXPECT_EQ(gpu->transfers.submissions(), submissions);
  EXPECT_NE(gpu->weights.vector({DType::f16, 1, 64, std::span(bytes).first(128)}), first);
}

TEST_F(VulkanMemory, BytesArriveThroughTheStagingRing) {
  const auto gpu = open();
  gpu->context->facts.has_host_memory = false;
  const uint64_t size = 2 * Transfers::piece_bytes() + 333;
  Memory memory(gpu->context, size, MemoryKind::gpu);
  ASSERT_EQ(memory.mapped, nullptr);
  testing_support::Bytes sent(size), received(size);
  for (size_t i = 0; i < size; ++i) sent[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  gpu->transfers.upload(memory, 0, sent);
  gpu->transfers.finish();
  gpu->transfers.download(memory, 0, received);
  EXPECT_EQ(received, sent);
  gpu->transfers.zero(memory);
  gpu->transfers.finish();
  gpu->transfers.download(memory, 0, received);
  EXPECT_EQ(received, testing_support::Bytes(size));
}

void expect_error(const std::function<void()>& what, std::string_view message,
                  std::string_view next_step) {
  try {
    what();
    FAIL() << "it went well";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::device);
    EXPECT_NE(std::string_view(error.what()).find(message), std::string_view::npos) << error.what();
    EXPECT_NE(std::string_view(error.hint).find(next_step), std::string_view::npos) << error.hint;
  }
}

TEST_F(VulkanMemory, OutOfMemoryIsSaidWithWhatToDo) {
  const auto gpu = open();
  expect_error(
      [&] { Memory(gpu->context, gpu->context->facts.largest_allocation + 1, MemoryKind::gpu); },
      "in one piece are more than", "smaller -c");
  gpu->context->api.vkAllocateMemory = [](VkDevice, const VkMemoryAllocateInfo*,
                                          const VkAllocationCallbacks*, VkDeviceMemory*) {
    return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  };
  expect_error([&] { Memory(gpu->context, 4096, MemoryKind::gpu); },
               "allocating 4096 bytes failed: the GPU is out of memory", "smaller model");
}

TEST_F(VulkanMemory, AGpuIsTakenByNameOrNumberOnly) {
  software_gpu();
  expect_error([] { Context(""); }, "computes on the processor's cores", "--gpu llvmpipe");
  EXPECT_EQ(Context("0").facts.kind, GpuKind::software);
  EXPECT_EQ(Context("LLVMpipe").facts.kind, GpuKind::software);
  for (const char* wanted : {"7", "99999999999", "radeon", "-1"})
    EXPECT_ERROR(Context{wanted}, "no GPU has that name or number") << wanted;
  ::setenv("VK_ICD_FILENAMES", "/nonexistent", 1);
  EXPECT_ERROR(Context("llvmpipe"), "no driver fits");
  EXPECT_ERROR(list_gpus(), "no driver fits");
}

// Every order of every two kinds, and among equals the first.
TEST(ChooseGpu, TheIntegratedOneFirstAndSoftwareNever) {
  constexpr GpuKind kInOrder[] = {GpuKind::integrated, GpuKind::discrete, GpuKind::virtual_gpu,
                                  GpuKind::other, GpuKind::software};
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = i + 1; j < 5; ++j) {
      const GpuFacts better{.name = "better", .driver = "", .kind = kInOrder[i]};
      const GpuFacts worse{.name = "worse", .driver = "", .kind = kInOrder[j]};
      EXPECT_EQ(choose_gpu(std::vector{better, worse}, ""), 0u) << i << j;
      EXPECT_EQ(choose_gpu(std::vector{worse, better}, ""), 1u) << i << j;
      EXPECT_EQ(choose_gpu(std::vector{worse, better, better}, ""), 1u) << i << j;
      EXPECT_EQ(choose_gpu(std::vector{worse, better}, "0"), 0u);
      EXPECT_EQ(choose_gpu(std::vector{better, worse}, "WORSE"), 1u);
    }
  const GpuFacts software{.name = "pipe", .driver = "", .kind = GpuKind::software};
  expect_error([&] { choose_gpu(std::vector{software, software}, ""); }, "the only device is pipe",
               "--gpu");
  EXPECT_EQ(choose_gpu(std::vector{software, software}, "1"), 1u);
  expect_error([] { choose_gpu({}, ""); }, "lists no GPU", "driver");
}

TEST_F(VulkanMemory, CompiledKernelsAreKeptAndADamagedFileIsNoHarm) {
  const auto file = folder_ / "below" / "pipelines.bin";
  const PipelineKey key{"rope_table", {64}};
  const auto use = [&](const std::filesystem::path& kept) {
    const auto gpu = open(kept);
    EXPECT_NE(gpu->pipelines.get(key), VK_NULL_HANDLE);
    EXPECT_EQ(gpu->pipelines.get(key), gpu->pipelines.get(key));
    gpu->pipelines.save();
  };
  use(file);
  ASSERT_TRUE(std::filesystem::is_regular_file(file));
  EXPECT_GE(std::filesystem::file_size(file), 32u);  // the header that Vulkan specifies
  use(file);
  for (const char* damage :
       {"", "x", "damaged, and for longer than a header has bytes: no kernels"}) {
    std::ofstream(file, std::ios::trunc) << damage;
    use(file);
    EXPECT_GE(std::filesystem::file_size(file), 32u);
  }
  use("/proc/tyto/pipelines.bin");  // no process may write there
}

TEST(VulkanCallData, HasATableForEachReader) {
  const uint32_t first[] = {7, 3}, second[] = {9};
  const uint32_t own_first[] = {UINT32_MAX, 4}, own_second[] = {2};
  const Segment segments[] = {{0, 70, 200, first, own_first}, {70, 1, 5, second, own_second}};
  const Call call = call_of(segments);
  const CallSize size = call_size(call, 256);
  EXPECT_EQ(size.tiles, 3u);  // 64 and 6 rows of the first, 1 of the second
  std::vector<uint32_t> words(size.words + 1, 0xeeeeeeee);
  write_call(call, 256, std::span(words).first(size.words));
  EXPECT_EQ(words.back(), 0xeeeeeeeeu);
  EXPECT_EQ(words[0], 71u);
  EXPECT_EQ(words[1], 2u);
  const auto row = [&](size_t t) { return &words[8 + 4 * t]; };
  EXPECT_EQ((std::vector<uint32_t>{row(69)[0], row(69)[1]}), (std::vector<uint32_t>{0, 269}));
  EXPECT_EQ(words[row(69)[3]], 7u);
  EXPECT_EQ(words[row(69)[3] + 1], 3u);
  EXPECT_EQ((std::vector<uint32_t>{row(70)[0], row(70)[1]}), (std::vector<uint32_t>{1, 5}));
  EXPECT_EQ(words[row(70)[3]], 9u);
  EXPECT_EQ(words[row(69)[3] + words[4] + 1], 4u);
  EXPECT_EQ(words[row(70)[3] + words[4]], 2u);
  const std::vector<uint32_t> segment(&words[words[2] + 4], &words[words[2] + 7]);
  EXPECT_EQ(segment, (std::vector<uint32_t>{70, 1, 5}));
  uint32_t rows = 0;
  for (size_t tile = 0; tile < size.tiles; ++tile) {
    const uint32_t* words_of = &words[words[3] + 4 * tile];
    EXPECT_LE(words_of[2], kTileRows);
    EXPECT_EQ(words_of[1], rows);
    rows += words_of[2];
  }
  EXPECT_EQ(rows, 71u);
}

}  // namespace
}  // namespace tyto::vulkan

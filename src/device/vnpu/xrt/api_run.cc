// xrt::kernel, ext::kernel and run.
#include <fmt/format.h>
#include <xrt/experimental/xrt_ext.h>
#include <xrt/xrt_kernel.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/vnpu/xrt/objects.h"

namespace xrt {
inline namespace vnpu {
namespace {

using tyto::vxrt::ImageForm;
using tyto::vxrt::Machine;

constexpr size_t kMostArguments = 4095;  // the driver's

run_impl& impl(const std::shared_ptr<run_impl>& handle) {
  if (!handle) fail_usage("empty run");
  return *handle;
}

// "kernel:instance"; the kernel alone will do where the image holds one instance.
std::shared_ptr<kernel_impl> find_kernel(const hw_context& context, const std::string& name,
                                         ImageForm form) {
  if (!context) fail_usage("kernel of no hw_context");
  const tyto::vxrt::LoadedImage* image = context.get_handle()->context.image.get();
  if (image == nullptr || image->image.form != form)
    fail_usage(fmt::format("kernel {}: the context holds no {}", name,
                           form == ImageForm::elf ? "ELF" : "xclbin"));
  const std::string known = form == ImageForm::elf ? "main" : "MLIR_AIE";
  auto kernel = std::make_shared<kernel_impl>();
  kernel->context = context.get_handle();
  kernel->image = image;
  if (name.starts_with(known + ":")) kernel->instance = image->find(name.substr(known.size() + 1));
  if (name == known && image->instances.size() == 1)
    kernel->instance = image->instances.front().get();
  if (kernel->instance == nullptr)
    fail_usage(fmt::format("no kernel {}: the image has {} of {}, the first {}:{}", name,
                           image->instances.size(), known, known,
                           image->image.instances.front().name));
  return kernel;
}

}  // namespace

kernel::kernel(const hw_context& context, const std::string& name)
    : handle_(find_kernel(context, name, ImageForm::xclbin)) {}

// Host memory is one group here; which one is of no consequence.
int kernel::group_id(int argument) const {
  if (!handle_ || argument < 0) fail_usage(fmt::format("group_id of argument {}", argument));
  return 0;
}

ext::kernel::kernel(const hw_context& context, const std::string& name)
    : xrt::kernel(find_kernel(context, name, ImageForm::elf)) {}

// Every run of an ELF has a copy of the control code, which it patches.
run_impl::run_impl(std::shared_ptr<kernel_impl> of) : kernel(std::move(of)) {
  const tyto::vxrt::Image& image = kernel->image->image;
  if (image.form == ImageForm::elf) {
    Machine::get().take_heap(image.file_bytes);
    heap_bytes = image.file_bytes;
  }
  job.image = kernel->image;
  job.instance = kernel->instance;
  job.context = &kernel->context->context;
}

run_impl::~run_impl() {
  Machine::get().abort(job);
  if (heap_bytes > 0) Machine::get().return_heap(heap_bytes);
}

run_argument& run_impl::argument(int index) {
  if (index < 0 || static_cast<size_t>(index) >= kMostArguments)
    fail_usage(fmt::format("no argument {}", index));
  if (arguments.size() <= static_cast<size_t>(index))
    arguments.resize(static_cast<size_t>(index) + 1);
  return arguments[static_cast<size_t>(index)];
}

void run_impl::bind(size_t index, const run_argument* argument, uint64_t span_bytes) {
  const uint64_t needed = job.instance->reach[index];
  if (needed == 0) return;  // dead: whatever was given is not looked at
  if (needed > span_bytes)
    job.bad_argument =
        fmt::format("argument {} spans {} bytes, DMA reaches {}", index, needed, span_bytes);
  else if (argument == nullptr || !argument->buffer)
    job.bad_argument = fmt::format("argument {} was given no buffer", index);
  else if (argument->buffer->size < needed)
    job.bad_argument = fmt::format("argument {} needs {} bytes, its buffer has {}", index, needed,
                                   argument->buffer->size);
  else
    job.arguments[index] = {argument->buffer->device, argument->buffer->memory.get(),
                            argument->buffer->offset};
}

void run_impl::prepare() {
  const tyto::vxrt::Instance& instance = job.instance->instance;
  const tyto::vxrt::Limits limits = Machine::get().limits();
  held.clear();
  for (const run_argument& argument : arguments)
    if (argument.buffer) held.push_back(argument.buffer);
  if (held.size() > limits.argument_buffers)
    fail_usage(
        fmt::format("{} argument buffers, at most {}", held.size(), limits.argument_buffers));
  job.bad_argument.clear();
  job.arguments.assign(instance.arguments.size(), {});
  job.call = instance.fixed_call;
  const bool is_elf = job.image->image.form == ImageForm::elf;
  const size_t first = is_elf ? 0 : tyto::vxrt::kXclbinFirstArgument;
  for (size_t i = 0; i < instance.arguments.size(); ++i)
    bind(i, find(first + i), limits.slot_span_bytes);
  if (!is_elf)
    prepare_instructions();
  else if (instance.takes_call)
    prepare_call(instance.arguments.size());
}

void run_impl::prepare_call(size_t first_scalar) {
  uint32_t scalars[tyto::vxrt::kCallScalars] = {1, 0, 0};
  for (size_t i = 0; i < tyto::vxrt::kCallScalars; ++i) {
    const run_argument* argument = find(first_scalar + i);
    if (argument == nullptr) continue;
    if (argument->is_scalar) scalars[i] = static_cast<uint32_t>(argument->scalar);
    if (argument->buffer)
      job.bad_argument = fmt::format("argument {} is a scalar", first_scalar + i);
  }
  job.call = tyto::call_of(scalars[0], scalars[1], scalars[2]);
}

void run_impl::prepare_instructions() {
  const run_argument *opcode = find(0), *words = find(1), *count = find(2);
  job.words = {};
  if (opcode == nullptr || !opcode->is_scalar || opcode->scalar != tyto::vxrt::kXclbinOpcode)
    job.bad_argument = "argument 0 is not opcode 3";
  else if (words == nullptr || !words->buffer || !words->buffer->is_heap)
    job.bad_argument = "argument 1 is not a cacheable buffer of instructions";
  else if (words->buffer->offset % sizeof(uint32_t) != 0)
    job.bad_argument = "argument 1 is not at a multiple of 4 bytes";
  else if (count == nullptr || !count->is_scalar ||
           count->scalar > words->buffer->size / sizeof(uint32_t))
    job.bad_argument = "argument 2 is not the number of instruction words";
  else
    job.words = {reinterpret_cast<const uint32_t*>(words->buffer->device), count->scalar};
}

run::run(const kernel& kernel) {
  if (!kernel) fail_usage("run of no kernel");
  handle_ = std::make_shared<run_impl>(kernel.get_handle());
}

void run::set_arg(int index, const bo& buffer) {
  if (!buffer) fail_usage(fmt::format("argument {} is an empty bo", index));
  impl(handle_).argument(index) = {buffer.get_handle(), 0, false};
}

void run::set_scalar(int index, const void* value, size_t size) {
  run_argument argument{nullptr, 0, true};
  std::memcpy(&argument.scalar, value, std::min(size, sizeof argument.scalar));
  impl(handle_).argument(index) = std::move(argument);
}

void run::start() {
  run_impl& self = impl(handle_);
  if (Machine::get().is_in_flight(self.job)) fail_usage("bad command state, can't launch");
  self.prepare();
  Machine::get().submit(self.job);
}

ert_cmd_state run::wait(const std::chrono::milliseconds& timeout) const {
  if (!Machine::get().wait(impl(handle_).job, timeout.count())) return ERT_CMD_STATE_TIMEOUT;
  return state();
}

ert_cmd_state run::state() const {
  return Machine::get().state(impl(handle_).job);
}

}  // namespace vnpu
}  // namespace xrt

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

// For control code on top of an xclbin. All the virtual device has is full ELFs.
ext::kernel::kernel(const hw_context&, const module& code, const std::string& name) {
  fail_usage(fmt::format("kernel {}: {}", name,
                         code.get_elf().get_handle() ? "a full ELF is no module" : "empty module"));
}

// Every run of an ELF has a copy of the control code, which it patches.
run_impl::run_impl(std::shared_ptr<kernel_impl> of) : kernel(std::move(of)) {
  const tyto::vxrt::Image& image = kernel->image->image;
  if (image.form == ImageForm::elf) {
    Machine::get().take_heap(image.file_bytes);
    heap_bytes = image.file_bytes;
  }
  job.image = kernel->image;
  job.instance = kernel->instance;
  command.jobs = {&job};
  command.context = &kernel->context->context;
  command.failed = &failed;
}

run_impl::~run_impl() {
  Machine::get().abort(command);
  if (heap_bytes > 0) Machine::get().return_heap(heap_bytes);
}

// A slot has a header and, for an xclbin, the arguments; an ELF's are patched into its control
// code.
uint64_t run_impl::chain_bytes() const {
  constexpr uint64_t kElfSlot = 40, kXclbinSlot = 24, kArgument = 8;
  if (job.image->image.form == ImageForm::elf) return kElfSlot;
  return kXclbinSlot + kArgument * arguments.size();
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
  job.call = {};
  uint32_t* const fields[] = {&job.call.tokens, &job.call.position, &job.call.first_row};
  for (size_t i = 0; i < tyto::vxrt::kCallScalars; ++i) {
    const run_argument* argument = find(first_scalar + i);
    if (argument == nullptr) continue;
    if (argument->is_scalar) *fields[i] = static_cast<uint32_t>(argument->scalar);
    if (argument->buffer)
      job.bad_argument = fmt::format("argument {} is a scalar", first_scalar + i);
  }
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
  if (self.is_in_list) fail_usage("a run in a runlist cannot be started on its own");
  if (Machine::get().is_in_flight(self.command)) fail_usage("bad command state, can't launch");
  self.prepare();
  self.failed = false;
  Machine::get().submit(self.command);
}

ert_cmd_state run::wait(const std::chrono::milliseconds& timeout) const {
  run_impl& self = impl(handle_);
  if (!Machine::get().wait(self.command, timeout.count())) return ERT_CMD_STATE_TIMEOUT;
  return state();
}

ert_cmd_state run::wait(unsigned timeout_ms) const {
  return wait(std::chrono::milliseconds(timeout_ms));
}

std::cv_status run::wait2(const std::chrono::milliseconds& timeout) const {
  run_impl& self = impl(handle_);
  if (!Machine::get().wait(self.command, timeout.count())) return std::cv_status::timeout;
  std::string reason;
  const ert_cmd_state ended = Machine::get().state(self.job, &reason);
  if (ended != ERT_CMD_STATE_COMPLETED)
    throw aie_error(ended,
                    fmt::format("run ended in state {}: {}", static_cast<int>(ended), reason));
  return std::cv_status::no_timeout;
}

ert_cmd_state run::state() const {
  return Machine::get().state(impl(handle_).job);
}

void run::submit_wait(const fence& fence) {
  if (!fence) fail_usage("empty fence");
  Machine::get().submit_wait(impl(handle_).kernel->context->context, fence.get_handle()->fence);
}

void run::submit_signal(const fence& fence) {
  if (!fence) fail_usage("empty fence");
  Machine::get().submit_signal(impl(handle_).kernel->context->context, fence.get_handle()->fence);
}

fence::fence(const device& device, access_mode) {
  if (!device) fail_usage("fence of no device");
  handle_ = std::make_shared<fence_impl>();
}

std::cv_status fence::wait(const std::chrono::milliseconds& timeout) {
  if (!handle_) fail_usage("empty fence");
  return Machine::get().wait_for(*handle_->fence, timeout.count()) ? std::cv_status::no_timeout
                                                                   : std::cv_status::timeout;
}

void fence::signal() {
  if (!handle_) fail_usage("empty fence");
  Machine::get().signal(*handle_->fence);
}

ert_cmd_state run::abort() {
  Machine::get().abort(impl(handle_).command);
  return state();
}

}  // namespace vnpu
}  // namespace xrt

// xrt::kernel, ext::kernel and run.
#include <fmt/format.h>
#include <xrt/experimental/xrt_ext.h>
#include <xrt/xrt_kernel.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/vxrt/objects.h"

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

// "kernel:instance"; the kernel alone will do, as an image holds one instance.
std::shared_ptr<kernel_impl> find_kernel(const hw_context& context, const std::string& name,
                                         ImageForm form) {
  if (!context) fail_usage("kernel of no hw_context");
  tyto::vxrt::LoadedImage* image = context.get_handle()->context.image.get();
  if (image == nullptr || image->image.form != form)
    fail_usage(fmt::format("kernel {}: the context holds no {}", name,
                           form == ImageForm::elf ? "ELF" : "xclbin"));
  const std::string known = form == ImageForm::elf ? "main" : "MLIR_AIE";
  if (name != known && name != known + ":" + image->image.instance)
    fail_usage(
        fmt::format("no kernel {}: the image has {}:{}", name, known, image->image.instance));
  auto kernel = std::make_shared<kernel_impl>();
  kernel->context = context.get_handle();
  kernel->image = image;
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
  command.jobs = {&job};
  command.context = &kernel->context->context;
  command.failed = &failed;
}

run_impl::~run_impl() {
  Machine::get().abort(command);
  if (heap_bytes > 0) Machine::get().return_heap(heap_bytes);
}

run_argument& run_impl::argument(int index) {
  if (index < 0 || static_cast<size_t>(index) >= kMostArguments)
    fail_usage(fmt::format("no argument {}", index));
  if (arguments.size() <= static_cast<size_t>(index))
    arguments.resize(static_cast<size_t>(index) + 1);
  return arguments[static_cast<size_t>(index)];
}

void run_impl::bind(size_t slot_index, const run_argument* argument, uint64_t span_bytes) {
  const tyto::Slot& slot = job.image->image.program.slots[slot_index];
  if (slot.bytes() > span_bytes)
    job.bad_argument =
        fmt::format("slot {} spans {} bytes, DMA reaches {}", slot.name, slot.bytes(), span_bytes);
  else if (argument == nullptr || !argument->buffer)
    job.bad_argument = fmt::format("slot {} was given no buffer", slot.name);
  else if (argument->buffer->size < slot.bytes())
    job.bad_argument = fmt::format("slot {} needs {} bytes, its buffer has {}", slot.name,
                                   slot.bytes(), argument->buffer->size);
  else
    job.buffers[slot_index] = argument->buffer->device;
}

void run_impl::prepare() {
  const tyto::vxrt::Image& image = job.image->image;
  const tyto::vxrt::Limits limits = Machine::get().limits();
  held.clear();
  for (const run_argument& argument : arguments)
    if (argument.buffer) held.push_back(argument.buffer);
  if (held.size() > limits.argument_buffers)
    fail_usage(
        fmt::format("{} argument buffers, at most {}", held.size(), limits.argument_buffers));
  job.bad_argument.clear();
  job.buffers.assign(image.program.slots.size(), nullptr);
  const bool is_elf = image.form == ImageForm::elf;
  const size_t first = is_elf ? 0 : tyto::vxrt::kXclbinFirstArgument;
  for (size_t i = 0; i < image.arguments.size(); ++i)
    if (!image.arguments[i].dead)
      bind(image.arguments[i].slot, find(first + i), limits.slot_span_bytes);
  is_elf ? prepare_call(image.arguments.size()) : prepare_instructions();
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
  job.instructions = nullptr;
  if (opcode == nullptr || !opcode->is_scalar || opcode->scalar != tyto::vxrt::kXclbinOpcode)
    job.bad_argument = "argument 0 is not opcode 3";
  else if (words == nullptr || !words->buffer || !words->buffer->is_heap)
    job.bad_argument = "argument 1 is not a cacheable buffer of instructions";
  else if (count == nullptr || !count->is_scalar || count->scalar < 4 ||
           count->scalar > words->buffer->size / 4)
    job.bad_argument = "argument 2 is not the number of instruction words";
  else
    job.instructions = words->buffer->device;
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

ert_cmd_state run::abort() {
  Machine::get().abort(impl(handle_).command);
  return state();
}

}  // namespace vnpu
}  // namespace xrt

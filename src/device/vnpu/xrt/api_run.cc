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
constexpr int kInstructions = 1;         // argument of an xclbin's kernel

run_impl& impl(const std::shared_ptr<run_impl>& handle) {
  if (!handle) fail_usage("empty run");
  return *handle;
}

uint32_t group_of_argument(int argument) {
  const tyto::vxrt::Hardware hardware = Machine::get().hardware();
  return argument == kInstructions ? hardware.instruction_group : hardware.host_group;
}

// XRT says so in its log, and nowhere else: what the caller writes to the buffer from now on does
// not reach the kernel, and what the kernel writes does not reach the caller.
std::shared_ptr<bo_impl> clone(bo_impl& buffer, uint32_t group) {
  auto copy = std::make_shared<bo_impl>(buffer.size, nullptr, buffer.is_heap, group);
  std::memcpy(copy->host, buffer.device, buffer.size);
  std::memcpy(copy->device, buffer.device, buffer.size);
  if (copy->synced != nullptr) std::memcpy(copy->synced, buffer.device, buffer.size);
  Machine::get().count_clone();
  buffer.clones.push_back(copy);
  return copy;
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

int kernel::group_id(int argument) const {
  if (!handle_ || argument < 0) fail_usage(fmt::format("group_id of argument {}", argument));
  return static_cast<int>(group_of_argument(argument));
}

ext::kernel::kernel(const hw_context& context, const std::string& name)
    : xrt::kernel(find_kernel(context, name, ImageForm::elf)) {}

// Every run of an ELF has a copy of the control code, which it patches.
run_impl::run_impl(std::shared_ptr<kernel_impl> of) : kernel(std::move(of)) {
  const tyto::vxrt::Image& image = kernel->image->image;
  if (image.form == ImageForm::elf) {
    const uint64_t given = Machine::get().limits().run_heap_bytes;
    heap_bytes = given > 0 ? given : image.file_bytes;
    Machine::get().take_heap(heap_bytes);
  }
  job->image = kernel->image;
  job->instance = kernel->instance;
  job->context = &kernel->context->context;
  Machine::get().count_run(1);
}

run_impl::~run_impl() {
  if (is_hostile && !is_done)
    Machine::get().give_up(std::move(job));
  else
    Machine::get().abort(*job);
  if (heap_bytes > 0) Machine::get().return_heap(heap_bytes);
  Machine::get().count_run(-1);
}

bool run_impl::is_in_progress() const {
  return is_hostile ? !is_done : Machine::get().is_in_flight(*job);
}

run_argument& run_impl::argument(int index) {
  if (index < 0 || static_cast<size_t>(index) >= kMostArguments)
    fail_usage(fmt::format("no argument {}", index));
  if (arguments.size() <= static_cast<size_t>(index))
    arguments.resize(static_cast<size_t>(index) + 1);
  return arguments[static_cast<size_t>(index)];
}

void run_impl::bind(size_t index, const run_argument* argument, uint64_t span_bytes) {
  const uint64_t needed = job->instance->reach[index];
  if (needed == 0) return;  // dead: whatever was given is not looked at
  const bo_impl* buffer = argument != nullptr ? argument->buffer.get() : nullptr;
  tyto::vxrt::Binding& bound = job->arguments[index];
  if (buffer != nullptr) bound = {buffer->device, buffer->memory.get(), buffer->offset};
  if (needed > span_bytes)
    job->bad_argument =
        fmt::format("argument {} spans {} bytes, DMA reaches {}", index, needed, span_bytes);
  else if (buffer != nullptr && buffer->size >= needed)
    return;
  else if (is_hostile)
    reach_beyond(index, buffer, needed);
  else if (buffer == nullptr)
    job->bad_argument = fmt::format("argument {} was given no buffer", index);
  else
    job->bad_argument =
        fmt::format("argument {} needs {} bytes, its buffer has {}", index, needed, buffer->size);
}

// A window goes on into the buffer it is of, like every other buffer into what lies behind.
void run_impl::reach_beyond(size_t index, const bo_impl* buffer, uint64_t needed) {
  uint64_t bytes = 0;
  for (const bo_impl* whole = buffer; whole != nullptr; whole = whole->parent.get())
    bytes = whole->size - (buffer->offset - whole->offset);
  const uint64_t size = buffer != nullptr ? buffer->size : 0;
  job->guards.push_back(std::make_unique<tyto::vxrt::GuardMemory>(
      index, job->arguments[index], size, std::min(bytes, needed), needed));
  job->arguments[index] = job->guards.back()->binding();
}

void run_impl::prepare() {
  const tyto::vxrt::Instance& instance = job->instance->instance;
  const tyto::vxrt::Limits limits = Machine::get().limits();
  job->keeps.clear();
  for (const run_argument& argument : arguments)
    if (argument.buffer) job->keeps.push_back(argument.buffer);
  if (job->keeps.size() > limits.argument_buffers)
    fail_usage(
        fmt::format("{} argument buffers, at most {}", job->keeps.size(), limits.argument_buffers));
  job->keeps.push_back(kernel);
  job->bad_argument.clear();
  job->guards.clear();
  job->arguments.assign(instance.arguments.size(), {});
  job->call = instance.fixed_call;
  const bool is_elf = job->image->image.form == ImageForm::elf;
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
      job->bad_argument = fmt::format("argument {} is a scalar", first_scalar + i);
  }
  job->call = tyto::call_of(scalars[0], scalars[1], scalars[2]);
}

void run_impl::prepare_instructions() {
  const run_argument *opcode = find(0), *words = find(1), *count = find(2);
  job->words = {};
  if (opcode == nullptr || !opcode->is_scalar || opcode->scalar != tyto::vxrt::kXclbinOpcode)
    job->bad_argument = "argument 0 is not opcode 3";
  else if (words == nullptr || !words->buffer || !words->buffer->is_heap)
    job->bad_argument = "argument 1 is not a cacheable buffer of instructions";
  else if (words->buffer->offset % sizeof(uint32_t) != 0)
    job->bad_argument = "argument 1 is not at a multiple of 4 bytes";
  else if (count == nullptr || !count->is_scalar ||
           count->scalar > words->buffer->size / sizeof(uint32_t))
    job->bad_argument = "argument 2 is not the number of instruction words";
  else
    job->words = {reinterpret_cast<const uint32_t*>(words->buffer->device), count->scalar};
}

run::run(const kernel& kernel) {
  if (!kernel) fail_usage("run of no kernel");
  handle_ = std::make_shared<run_impl>(kernel.get_handle());
}

void run::set_arg(int index, const bo& buffer) {
  if (!buffer) fail_usage(fmt::format("argument {} is an empty bo", index));
  run_impl& self = impl(handle_);
  const bool is_elf = self.job->image->image.form == ImageForm::elf;
  run_argument& argument = self.argument(index);
  argument = {buffer.get_handle(), 0, false};
  if (!self.is_hostile) return;
  // XRT 2.23 and later, after it has taken the buffer; for an ELF alone, whose control code it
  // would patch.
  if (is_elf && self.is_in_progress())
    throw std::runtime_error("xrt::run::set_arg called while command is still in progress");
  // An ELF says nothing about memory groups.
  if (!is_elf && argument.buffer->group != group_of_argument(index))
    argument.buffer = clone(*argument.buffer, group_of_argument(index));
}

void run::set_scalar(int index, const void* value, size_t size) {
  run_argument argument{nullptr, 0, true};
  std::memcpy(&argument.scalar, value, std::min(size, sizeof argument.scalar));
  impl(handle_).argument(index) = std::move(argument);
}

void run::start() {
  run_impl& self = impl(handle_);
  if (self.is_in_progress()) fail_usage("bad command state, can't launch");
  if (self.is_hostile) Machine::get().check_offences();
  self.prepare();
  self.is_done = false;
  Machine::get().submit(*self.job);
}

ert_cmd_state run::wait(const std::chrono::milliseconds& timeout) const {
  run_impl& self = impl(handle_);
  if (!Machine::get().wait(*self.job, timeout.count())) return ERT_CMD_STATE_TIMEOUT;
  self.is_done = true;
  if (self.is_hostile) Machine::get().check_offences();
  return Machine::get().state(*self.job);
}

ert_cmd_state run::state() const {
  run_impl& self = impl(handle_);
  const ert_cmd_state state = Machine::get().state(*self.job);
  if (state != ERT_CMD_STATE_NEW && !Machine::get().is_in_flight(*self.job)) self.is_done = true;
  return state;
}

}  // namespace vnpu
}  // namespace xrt

#include "ggml/host_delegate.h"

#include <memory>

#include "base/error.h"

namespace tyto::plugin {

HostDelegate::~HostDelegate() {
  if (backend_ != nullptr) ggml_backend_free(backend_);
}

void HostDelegate::compute(const std::vector<ggml_tensor*>& nodes) {
  if (backend_ == nullptr)
    backend_ = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
  if (backend_ == nullptr) throw Error(ErrorCode::device, "cpu", "ggml has no CPU backend here");
  if (threads_ > 0) {
    const ggml_backend_reg_t cpu = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend_));
    const auto set = reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(cpu, "ggml_backend_set_n_threads"));
    if (set != nullptr) set(backend_, threads_);
  }
  const size_t bytes = ggml_graph_overhead_custom(nodes.size(), false) + 1024;
  const std::unique_ptr<ggml_context, void (*)(ggml_context*)> context(
      ggml_init({bytes, nullptr, true}), ggml_free);
  if (!context) throw Error(ErrorCode::device, "cpu", "no memory for a graph");
  ggml_cgraph* graph = ggml_new_graph_custom(context.get(), nodes.size(), false);
  for (ggml_tensor* node : nodes) ggml_graph_add_node(graph, node);
  if (ggml_backend_graph_compute(backend_, graph) != GGML_STATUS_SUCCESS)
    throw Error(ErrorCode::device, "cpu", "ggml's CPU backend failed");
}

}  // namespace tyto::plugin

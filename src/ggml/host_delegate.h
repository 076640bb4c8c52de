// What the device does not take, computed by ggml's own CPU backend: operations of callers that do
// not ask what is offered (llama.cpp's RPC server), and values that eight bits cannot hold.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <vector>

namespace tyto::plugin {

class HostDelegate {
 public:
  ~HostDelegate();
  void set_threads(int threads) { threads_ = threads; }
  // In order, on tensors in host memory. Throws an Error when there is no CPU backend or it fails.
  void compute(const std::vector<ggml_tensor*>& nodes);

 private:
  ggml_backend_t backend_ = nullptr;  // opened when first needed
  int threads_ = 0;                   // 0: as the backend likes
};

}  // namespace tyto::plugin

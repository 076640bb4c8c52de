#include "ggml/weights.h"

#include "ggml/lowering.h"
#include "ggml/offer.h"
#include "trace/counters.h"

namespace tyto::plugin {

Weight& Weights::at(const ggml_tensor* tensor) {
  const auto found = made_.find(tensor->data);
  if (found != made_.end()) return found->second;
  const uint64_t begin_ns = now_ns();
  const TensorView view = view_of(tensor);
  Weight weight;
  weight.form = device_.prepare(weight_role(tensor->name).name, view);
  if (is_weight_matrix(tensor)) {
    weight.macs_per_token = view.values();
    ++totals_.matrices;
    totals_.bytes += view.values();
    totals_.macs_per_token += view.values();
  }
  totals_.seconds += static_cast<double>(now_ns() - begin_ns) / 1e9;
  return made_.emplace(tensor->data, std::move(weight)).first->second;
}

bool Weights::forget(const void* begin, const void* end) {
  const auto first = made_.lower_bound(begin), last = made_.lower_bound(end);
  const bool is_any = first != last;
  made_.erase(first, last);
  return is_any;
}

void Weights::count_tokens(Weight& weight, uint64_t tokens) {
  weight.tokens += tokens;
  if (tokens == 1) ++weight.alone;
  // Layers see every token. The head sees a prompt's last one alone, which is not decoding.
  if (weight.tokens < totals_.most_tokens) return;
  totals_.most_tokens = weight.tokens;
  totals_.most_alone = weight.alone;
}

}  // namespace tyto::plugin

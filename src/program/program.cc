#include "program/program.h"

#include <span>

namespace tyto {
namespace {

class Serialiser {
 public:
  template <typename T>
  void add(const T& value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  Hash128 hash() const { return hash_bytes(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

Hash128 program_hash(const Program& program) {
  Serialiser out;
  out.add(program.slots.size());
  for (const Slot& slot : program.slots) {
    const bool activation = slot.kind != SlotKind::weight && slot.kind != SlotKind::kv;
    out.add(activation ? SlotKind::scratch : slot.kind);
    out.add(slot.dtype);
    out.add(slot.rows);
    out.add(slot.cols);
  }
  out.add(program.launches.size());
  for (const Launch& launch : program.launches) {
    out.add(launch.kernel);
    out.add(launch.args.size());
    for (const Arg& arg : launch.args) {
      out.add(arg.slot);
      out.add(arg.reads);
      out.add(arg.writes);
    }
    out.add(launch.shape.heads);
    out.add(launch.shape.kv_heads);
    out.add(launch.shape.head_dim);
    out.add(launch.shape.context);
    out.add(launch.shape.kv_group);
    out.add(launch.shape.rope_pairs);
    out.add(launch.shape.eps);
    out.add(launch.shape.bf16_sums);
  }
  return out.hash();
}

}  // namespace tyto

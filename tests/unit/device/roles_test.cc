// What a device makes of a launch's role: its price, also where programs share one image.
#include <gtest/gtest.h>

#include <cmath>

#include "cost/cost_model.h"
#include "device/device.h"
#include "device/vnpu/images/air_images.h"
#include "device/vnpu/machine/control.h"
#include "program/kernels.h"
#include "support/program_time.h"
#include "tensor/float16.h"

namespace tyto {
namespace {

constexpr uint64_t kWidth = 512;  // so large that its bytes outweigh the call

// One row times a square matrix, in no block: nothing that MLIR-AIR has a program of.
Program product(Role role) {
  Program program;
  program.name = "product";
  program.slots = {{"x", SlotKind::input, DType::bf16, 1, kWidth},
                   {"w", SlotKind::weight, DType::bf16, kWidth, kWidth},
                   {"y", SlotKind::output, DType::bf16, 1, kWidth}};
  program.launches = {{Kernel::matmul,
                       "product",
                       {{0, true, false}, {1, true, false}, {2, false, true}},
                       {},
                       role}};
  return program;
}

class RolePrices : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override { vxrt::reset(); }

  struct Loaded {
    std::unique_ptr<Executable> executable;
    Buffer x, y;
  };

  Loaded load(Device& device, Role role) {
    const Program program = product(role);
    const TensorView weight{DType::bf16, kWidth, kWidth, std::as_bytes(std::span(weight_))};
    const std::vector<TensorView> weights = {{}, weight, {}};
    Loaded result{device.load(program, weights), device.alloc(program.slots[0]),
                  device.alloc(program.slots[2])};
    result.executable->bind(0, result.x);
    result.executable->bind(2, result.y);
    return result;
  }

  static Completion run(const Loaded& loaded) {
    loaded.executable->submit(call_of(1));
    return loaded.executable->wait(std::chrono::seconds(60));
  }

  const std::vector<uint16_t> weight_ = std::vector<uint16_t>(kWidth * kWidth, f32_to_bf16(0.5f));
  ThreadPool pool_{2};
  Trace trace_;
};

TEST_F(RolePrices, EqualShapesOfDifferentRolesInOneCompiledSetHaveTheirOwnTimes) {
  const std::vector<std::vector<Role>> orders = {{Role::lm_head, Role::o, Role::q},
                                                 {Role::o, Role::q, Role::lm_head}};
  for (const std::vector<Role>& order : orders) {
    const auto device =
        open_device("vnpu", {pool_, trace_, Fusion::op, {}, {{"vnpu-hostile", "on"}}});
    std::map<Role, Loaded> loaded;
    for (const Role role : order) loaded.emplace(role, load(*device, role));
    std::map<Role, uint64_t> ns;
    for (const Role role : order) {
      run(loaded.at(role));  // the first of a context loads its configuration
      ns[role] = run(loaded.at(role)).device_ns;
    }
    EXPECT_EQ(vxrt::counters().live_contexts, 1u) << "they are not in one image";
    EXPECT_LT(ns[Role::lm_head], ns[Role::o]);  // the head streams faster than the layers
    EXPECT_EQ(ns[Role::q], ns[Role::o]);
    for (const Role role : order)
      EXPECT_NEAR(static_cast<double>(ns[role]),
                  1e6 * testing_support::program_ms(product(role), call_of(1)), 2)
          << name(role);
  }
}

// The rounding of a product's sums is part of the product.
TEST(RoleOperators, ACastOfAnImageCountsWhereItsProductDoes) {
  size_t casts = 0;
  for (const char* name : {"rms_gemms_rope", "o_ffn"}) {
    const vxrt::Image image = vxrt::air_image(kLlama32_1b, name);
    const Program& program = image.instances[0].program;
    std::map<uint16_t, const Launch*> writers;  // by slot
    for (const Launch& launch : program.launches) {
      if (launch.kernel == Kernel::cast) {
        const auto product = writers.find(launch.args[0].slot);
        ASSERT_NE(product, writers.end()) << name;
        ASSERT_EQ(product->second->kernel, Kernel::matmul) << name;
        EXPECT_EQ(launch.role, product->second->role) << name;
        EXPECT_EQ(operator_of(launch), operator_of(*product->second)) << name;
        EXPECT_NE(operator_of(launch), Operator::other) << name;
        ++casts;
      }
      for (const Arg& arg : launch.args)
        if (arg.writes) writers[arg.slot] = &launch;
    }
  }
  EXPECT_EQ(casts, 5u);  // q, o, gate, up, down
}

// An image's steps have the roles of the forward pass.
TEST(RoleOperators, NoLaunchOfAnImageIsWithoutARole) {
  for (const char* name :
       {"rms_gemms_rope", "flash_attn", "o_ffn", "lm_head_gemv", "rms_gemv_rope", "o_gemv_ffn"}) {
    const vxrt::Image image = vxrt::air_image(kLlama32_1b, name);
    for (const Launch& launch : image.instances[0].program.launches)
      EXPECT_NE(launch.role, Role::none) << name << ": " << launch.name;
  }
}

}  // namespace
}  // namespace tyto

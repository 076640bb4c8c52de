#include "program/stitch.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

// a -> b -> c -> d through three scratch slots, in two blocks.
Program chain() {
  Program program;
  program.name = "chain";
  for (const char* name : {"a", "b", "c", "d"})
    program.slots.push_back({name, SlotKind::scratch, DType::f32, 4, 8});
  program.slots[0].kind = SlotKind::input;
  program.slots[3].kind = SlotKind::output;
  for (uint16_t i = 0; i < 3; ++i)
    program.launches.push_back({Kernel::gather_rows,
                                "step" + std::to_string(i),
                                {{i, true, false}, {static_cast<uint16_t>(i + 1), false, true}},
                                {},
                                Role::none,
                                kNoLayer,
                                i < 2 ? Block::embed : Block::o_ffn});
  return program;
}

std::vector<size_t> sizes(const std::vector<Piece>& pieces) {
  std::vector<size_t> result;
  for (const Piece& piece : pieces) result.push_back(piece.program.launches.size());
  return result;
}

const std::vector<uint8_t> kOneDevice(3, 0);

TEST(Stitch, FusionDecidesWhereToCut) {
  EXPECT_EQ(sizes(stitch(chain(), Fusion::op, kOneDevice)), (std::vector<size_t>{1, 1, 1}));
  EXPECT_EQ(sizes(stitch(chain(), Fusion::block, kOneDevice)), (std::vector<size_t>{2, 1}));
  EXPECT_EQ(sizes(stitch(chain(), Fusion::token, kOneDevice)), (std::vector<size_t>{3}));
}

TEST(Stitch, BlocksOfDifferentLayersAreDifferent) {
  Program program = chain();
  for (Launch& launch : program.launches) launch.block = Block::o_ffn;
  EXPECT_EQ(sizes(stitch(program, Fusion::block, kOneDevice)), (std::vector<size_t>{3}));
  program.launches[2].layer = 1;
  EXPECT_EQ(sizes(stitch(program, Fusion::block, kOneDevice)), (std::vector<size_t>{2, 1}));
}

TEST(Stitch, AnOperatorIsOneDispatchAtFusionOp) {
  Program program = chain();
  program.launches[1].op_group = program.launches[2].op_group = 1;
  EXPECT_EQ(sizes(stitch(program, Fusion::op, kOneDevice)), (std::vector<size_t>{1, 2}));
  program.launches[2].layer = 1;  // another layer's: another operator
  EXPECT_EQ(sizes(stitch(program, Fusion::op, kOneDevice)), (std::vector<size_t>{1, 1, 1}));
}

TEST(Stitch, ADeviceChangeAlwaysCuts) {
  const std::vector<uint8_t> devices = {0, 1, 0};
  EXPECT_EQ(sizes(stitch(chain(), Fusion::token, devices)), (std::vector<size_t>{1, 1, 1}));
}

TEST(Stitch, ScratchStaysScratchOnOneDevice) {
  for (const Piece& piece : stitch(chain(), Fusion::op, kOneDevice))
    for (const Slot& slot : piece.program.slots) {
      const bool between = slot.name == "b" || slot.name == "c";
      EXPECT_EQ(slot.kind == SlotKind::scratch, between) << slot.name;
    }
}

TEST(Stitch, ScratchThatCrossesDevicesMoves) {
  const std::vector<uint8_t> devices = {0, 1, 0};
  const auto pieces = stitch(chain(), Fusion::token, devices);
  EXPECT_EQ(pieces[0].program.slots[1].kind, SlotKind::output);  // b leaves device 0
  EXPECT_EQ(pieces[1].program.slots[0].kind, SlotKind::input);   // b arrives at device 1
  EXPECT_EQ(pieces[1].program.slots[1].kind, SlotKind::output);  // c leaves device 1
  EXPECT_EQ(pieces[2].program.slots[0].kind, SlotKind::input);   // c arrives at device 0
}

TEST(Stitch, ScratchReadAndRewrittenElsewhereIsInout) {
  Program program = chain();
  program.launches[1].args = {{1, true, true}};  // device 1 changes b in place
  program.launches[2].args[0].slot = 1;          // device 0 reads b again
  const auto pieces = stitch(program, Fusion::token, std::vector<uint8_t>{0, 1, 0});
  EXPECT_EQ(pieces[1].program.slots[0].kind, SlotKind::inout);
}

TEST(Stitch, PiecesPointBackAtTheWhole) {
  const auto pieces = stitch(chain(), Fusion::op, kOneDevice);
  EXPECT_EQ(pieces[2].whole_slots, (std::vector<uint16_t>{2, 3}));
  EXPECT_EQ(pieces[2].program.launches[0].args[0].slot, 0);
  EXPECT_EQ(pieces[2].program.launches[0].args[1].slot, 1);
}

TEST(ProgramHash, IgnoresNamesLayersAndTransfersAndSeesEverythingElse) {
  const Hash128 original = program_hash(chain());
  Program renamed = chain();
  renamed.slots[1].name = "other";
  renamed.launches[0].name = "other";
  renamed.name = "other";
  renamed.launches[0].layer = 3;
  renamed.slots[2].layer = 3;
  renamed.slots[1].kind = SlotKind::input;
  EXPECT_EQ(program_hash(renamed), original);

  Program changed = chain();
  changed.slots[1].cols = 16;
  EXPECT_NE(program_hash(changed), original);
  changed = chain();
  changed.launches[0].shape.eps = 1e-6f;
  EXPECT_NE(program_hash(changed), original);
  changed = chain();
  changed.launches[0].args[0].slot = 2;
  EXPECT_NE(program_hash(changed), original);
  changed = chain();
  changed.launches[0].role = Role::lm_head;
  EXPECT_NE(program_hash(changed), original);
}

// Where a device says what it takes together, its dispatches are that and are called so.
TEST(Stitch, ADevicesOwnBlocksComeBeforeThoseOfTheProgram) {
  Program program = chain();
  const Role roles[] = {Role::o, Role::gate, Role::up};
  for (size_t i = 0; i < 3; ++i) {
    program.launches[i].role = roles[i];
    program.launches[i].layer = 3;
  }
  std::vector<std::vector<DispatchBlock>> blocks(1);
  const bool is_prompt = program.slots[program.launches[0].args[0].slot].rows > 1;
  blocks[0] = {{"first", is_prompt, {Role::o}}, {"rest", is_prompt, {Role::gate, Role::up}}};
  const auto pieces = stitch(program, Fusion::block, kOneDevice, blocks);
  ASSERT_EQ(sizes(pieces), (std::vector<size_t>{1, 2}));
  EXPECT_EQ(pieces[0].program.name, "L03.first");
  EXPECT_EQ(pieces[1].program.name, "L03.rest");
  EXPECT_EQ(pieces[1].program.dispatch, "rest");
  // They say nothing of other rows, or at other fusions.
  for (DispatchBlock& block : blocks[0]) block.is_prompt = !is_prompt;
  EXPECT_EQ(stitch(program, Fusion::block, kOneDevice, blocks)[0].program.dispatch, "");
  for (DispatchBlock& block : blocks[0]) block.is_prompt = is_prompt;
  EXPECT_EQ(stitch(program, Fusion::token, kOneDevice, blocks).size(), 1u);
  // Two layers are two dispatches.
  program.launches[2].layer = 4;
  EXPECT_EQ(sizes(stitch(program, Fusion::block, kOneDevice, blocks)),
            (std::vector<size_t>{1, 1, 1}));
}

}  // namespace
}  // namespace tyto

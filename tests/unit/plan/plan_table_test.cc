#include "plan/plan_table.h"

#include <gtest/gtest.h>

namespace tyto::test {
namespace {

// What stands below the table, up to the flags of the recommended row.
std::string command_of(const std::string& shape, bool is_of_a_shape,
                       const std::string& model = "") {
  PlanSubject subject;
  subject.is_of_a_shape = is_of_a_shape;
  subject.request.shape = shape;
  if (!model.empty()) subject.model_flag = "-m " + model + " ";
  PlanRow row;
  row.kernels = "cpu";
  row.flags = "--device cpu";
  row.is_recommended = true;
  const std::string begin = "* recommended, the fastest to decode that is known to work: ";
  for (const std::string& note : plan_table({row}, subject).notes)
    if (note.starts_with(begin)) return note.substr(begin.size());
  return "nothing is recommended";
}

TEST(PlanTable, TheCommandToCopyRuns) {
  EXPECT_EQ(command_of("owlet", false), "tyto run --device cpu");
  EXPECT_EQ(command_of("tiny", false, "a.gguf"), "tyto run -m a.gguf --device cpu");
}

TEST(PlanTable, AShapeHasNoModelToRun) {
  EXPECT_EQ(command_of("tiny", true), "tyto run -m MODEL --device cpu, with a model of this shape");
  EXPECT_EQ(command_of("llama-3.2-1b", true),
            "tyto pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M, then tyto run -m "
            "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M --device cpu");
}

}  // namespace
}  // namespace tyto::test

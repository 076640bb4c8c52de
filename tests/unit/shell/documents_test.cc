// Pages of docs/ in what the program prints.
#include "shell/help.h"

#include <gtest/gtest.h>

#include "support/system_tree.h"

namespace tyto {
namespace {

TEST(Documents, AreNamedWhereTheyLie) {
  const testing_support::SystemTree tree;
  tree.write("usr/share/doc/tyto/docs/cost-model.md", "");
  tree.write("source/docs/evidence.md", "");
  const std::string root = tree.root().string();
  const auto installed = [&](const char* text) {
    return with_documents_found(text, tree.root() / "usr/bin");
  };
  EXPECT_EQ(installed("see docs/cost-model.md, and more"),
            "see " + root + "/usr/share/doc/tyto/docs/cost-model.md, and more");
  EXPECT_EQ(installed("(docs/cost-model.md)docs/cost-model.md"),
            "(" + root + "/usr/share/doc/tyto/docs/cost-model.md)" + root +
                "/usr/share/doc/tyto/docs/cost-model.md");
  EXPECT_EQ(with_documents_found("docs/evidence.md says more.", tree.root() / "source/build/dev"),
            root + "/source/docs/evidence.md says more.");
}

TEST(Documents, KeepTheirNamesWhereNoneLie) {
  const testing_support::SystemTree tree;
  for (const char* text : {"docs/evidence.md says more.", "my/docs/evidence.md", "docs/", "docs/x",
                           "docs/evidence.txt", "nothing", ""})
    EXPECT_EQ(with_documents_found(text, tree.root() / "usr/bin"), text);
}

}  // namespace
}  // namespace tyto

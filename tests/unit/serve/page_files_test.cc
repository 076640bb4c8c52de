#include "serve/page/page_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/file.h"

namespace tyto {
namespace {

const PageFile* find(std::string_view path) {
  for (const PageFile& file : page_files())
    if (file.path == path) return &file;
  return nullptr;
}

TEST(PageFiles, HoldTheFolderByteForByte) {
  const std::filesystem::path folder = TYTO_SOURCE_DIR "/src/serve/page";
  size_t served = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename(), extension = entry.path().extension();
    const PageFile* file = find(name == "index.html" ? "/" : "/page/" + name);
    if (extension == ".h" || extension == ".cmake") {
      EXPECT_EQ(file, nullptr) << name;
      continue;
    }
    ++served;
    ASSERT_NE(file, nullptr) << name;
    EXPECT_EQ(file->bytes, read_text_file(entry.path(), 1 << 20)) << name;
  }
  EXPECT_EQ(page_files().size(), served);
}

TEST(PageFiles, HaveTypesAndStrongTags) {
  ASSERT_NE(find("/"), nullptr);
  EXPECT_EQ(find("/")->type, "text/html; charset=utf-8");
  EXPECT_EQ(find("/page/app.mjs")->type, "text/javascript; charset=utf-8");
  EXPECT_EQ(find("/page/style.css")->type, "text/css; charset=utf-8");
  EXPECT_EQ(find("/page/icon.svg")->type, "image/svg+xml");
  std::set<std::string_view> tags;
  for (const PageFile& file : page_files()) {
    EXPECT_EQ(file.etag.size(), 34u) << file.path;
    EXPECT_TRUE(file.etag.starts_with('"') && file.etag.ends_with('"')) << file.path;
    EXPECT_TRUE(tags.insert(file.etag).second) << file.path;
  }
}

// The policy forbids what is written inline, so a page that has it would be broken.
TEST(PageFiles, NeedNothingThatThePolicyForbids) {
  const std::string_view page = find("/")->bytes;
  for (const char* inline_code :
       {"<style", " style=", " onclick=", " onload=", "javascript:", "//"})
    EXPECT_EQ(page.find(inline_code), page.npos) << inline_code;
  for (const PageFile& file : page_files())
    for (const char* markup :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("})
      EXPECT_EQ(file.bytes.find(markup), file.bytes.npos) << file.path << " has " << markup;
}

}  // namespace
}  // namespace tyto

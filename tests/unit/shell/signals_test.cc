#include "shell/signals.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/atomic_file.h"
#include "base/file.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

class SignalsTest : public testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    folder_ =
        fs::temp_directory_path() /
        (std::string("tyto_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(SignalsTest, WhatIsHalfWrittenIsRemovedAndTheSignalEndsTheProgram) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    EXPECT_EXIT(
        {
          ::signal(signal, SIG_DFL);  // nohup and a shell's & have some of them ignored
          handle_signals();
          AtomicFile file(folder_ / "report");
          file.write("half");
          AtomicFolder folder(folder_ / "folder", Replace::same_kind, {"anything", nullptr});
          AtomicFile first(folder.file("below/a"));
          first.commit();
          AtomicFile second(folder.file("below/b"));
          AtomicFile done(folder_ / "done");
          done.write("whole");
          done.commit();
          ::raise(signal);
        },
        testing::KilledBySignal(signal), "");
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_))
    left.push_back(entry.path().filename().string());
  EXPECT_EQ(left, std::vector<std::string>{"done"});
}

TEST_F(SignalsTest, AnIgnoredSignalStaysIgnored) {
  EXPECT_EXIT(
      {
        ::signal(SIGHUP, SIG_IGN);  // as nohup does
        handle_signals();
        ::raise(SIGHUP);
        ::_exit(7);
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(SignalsTest, TheFirstInterruptIsNotedAndTheSecondEndsTheProgram) {
  EXPECT_EXIT(
      {
        ::signal(SIGINT, SIG_DFL);
        handle_signals();
        const InterruptWatch watch;
        if (watch.is_interrupted()) ::_exit(1);
        ::raise(SIGINT);
        ::_exit(watch.is_interrupted() ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        ::signal(SIGINT, SIG_DFL);
        handle_signals();
        const InterruptWatch watch;
        AtomicFile file(folder_ / "report");
        file.write("half");
        ::raise(SIGINT);
        ::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SignalsTest, AWatchLeavesNothingBehind) {
  EXPECT_EXIT(
      {
        ::signal(SIGINT, SIG_DFL);
        handle_signals();
        {
          const InterruptWatch watch;
        }
        ::raise(SIGINT);
        ::_exit(1);
      },
      testing::KilledBySignal(SIGINT), "");
  EXPECT_EXIT(
      {
        ::signal(SIGINT, SIG_IGN);
        handle_signals();
        const InterruptWatch watch;
        ::raise(SIGINT);
        ::_exit(watch.is_interrupted() ? 1 : 7);
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(SignalsTest, AClosedPipeEndsTheProgramWithoutAWord) {
  const auto write_to_nobody = [&] {
    handle_signals();
    int ends[2] = {};
    if (::pipe(ends) != 0) ::_exit(7);
    ::close(ends[0]);
    if (::write(ends[1], "x", 1) != -1 || errno != EPIPE) ::_exit(8);  // as a server's client
    ::dup2(ends[1], STDOUT_FILENO);
    AtomicFile report(folder_ / "report");
    report.write("half");
    print("whole");
  };
  EXPECT_EXIT(write_to_nobody(), testing::KilledBySignal(SIGPIPE), "^$");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SignalsTest, AFileThatBecameShorterIsOneLine) {
  const auto read_what_is_gone = [&] {
    handle_signals();
    std::ofstream(folder_ / "model") << std::string(1 << 20, 'x');
    const MappedFile file(folder_ / "model");
    AtomicFile report(folder_ / "report");
    fs::resize_file(folder_ / "model", 4096);
    // On any thread, and on several at once: workers read the weights.
    std::vector<std::thread> workers;
    for (size_t i = 1; i <= 4; ++i)
      workers.emplace_back([&file, i] {
        const volatile std::byte* byte = &file.bytes()[i * 200000];
        (void)*byte;
      });
    for (std::thread& worker : workers) worker.join();
  };
  EXPECT_EXIT(read_what_is_gone(), testing::ExitedWithCode(1),
              "^tyto: .*/model: became shorter or unreadable while it was in use\n$");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(SignalsTest, AnotherBusErrorIsNotOurs) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has a word to say then";
#endif
  const auto read_what_is_gone = [&] {
    handle_signals();
    std::FILE* file = std::tmpfile();
    void* memory = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, ::fileno(file), 0);
    (void)*static_cast<const volatile char*>(memory);
  };
  EXPECT_EXIT(read_what_is_gone(), testing::KilledBySignal(SIGBUS), "^$");
}

}  // namespace
}  // namespace tyto

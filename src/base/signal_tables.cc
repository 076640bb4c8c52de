#include "base/signal_tables.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <utility>

namespace tyto {
namespace {

// A handler may not take a mutex. It may wait for this lock, because its holder cannot be
// interrupted, and holds it for a few instructions.
class SignalLock {
 public:
  SignalLock() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    while (held_.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~SignalLock() {
    held_.clear(std::memory_order_release);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalLock(const SignalLock&) = delete;
  SignalLock& operator=(const SignalLock&) = delete;

 private:
  static constinit std::atomic_flag held_;
  sigset_t before_;
};

constinit std::atomic_flag SignalLock::held_ = ATOMIC_FLAG_INIT;

}  // namespace

// Lists through the objects themselves: entering one allocates nothing and has no limit.
struct SignalTables {
  static constinit PartialPath* paths;
  static constinit MappedRange* ranges;

  template <typename T>
  static void enter(T*& newest, T* object) {
    const SignalLock lock;
    object->older_ = std::exchange(newest, object);
  }

  template <typename T>
  static void leave(T*& newest, T* object) {
    const SignalLock lock;
    T** at = &newest;
    while (*at != object) at = &(*at)->older_;
    *at = object->older_;
  }

  static void remove_paths() noexcept {
    const SignalLock lock;
    for (const PartialPath* each = paths; each != nullptr; each = each->older_)
      if (::unlink(each->path_.c_str()) != 0) (void)::rmdir(each->path_.c_str());
  }

  static const char* loss_of(std::span<const std::byte> bytes) noexcept {
    const SignalLock lock;
    for (const MappedRange* each = ranges; each != nullptr; each = each->older_)
      if (bytes.data() >= each->bytes_.data() &&
          bytes.data() + bytes.size() <= each->bytes_.data() + each->bytes_.size())
        return each->loss_.c_str();
    return nullptr;
  }
};

constinit PartialPath* SignalTables::paths = nullptr;
constinit MappedRange* SignalTables::ranges = nullptr;

PartialPath::PartialPath(std::string path) : path_(std::move(path)) {
  SignalTables::enter(SignalTables::paths, this);
}

PartialPath::~PartialPath() {
  SignalTables::leave(SignalTables::paths, this);
}

MappedRange::MappedRange(std::span<const std::byte> bytes, std::string loss)
    : bytes_(bytes), loss_(std::move(loss)) {
  SignalTables::enter(SignalTables::ranges, this);
}

MappedRange::~MappedRange() {
  SignalTables::leave(SignalTables::ranges, this);
}

void remove_partial_paths() noexcept {
  SignalTables::remove_paths();
}

const char* loss_of(std::span<const std::byte> bytes) noexcept {
  return SignalTables::loss_of(bytes);
}

}  // namespace tyto

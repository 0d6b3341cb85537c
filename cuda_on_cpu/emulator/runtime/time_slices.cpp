// Time slices by a timer of each OS thread that runs blocks. The timer's signal interrupts the code of a kernel.
#include "time_slices.h"

#include <csignal>
#include <ctime>
#include <mutex>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "core.h"

namespace emulator {
namespace {

// A thread that waits for another one runs for at least one long slice. The timer costs little at this rate.
constexpr long kLong_ns = 10'000'000, kShort_ns = 100'000;

std::uintptr_t program_counter(const void* context) {
  [[maybe_unused]] const auto& saved = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(saved.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<std::uintptr_t>(saved.pc);
#else
  return 0;
#endif
}

void on_signal(int, siginfo_t*, void* context) {
  const int before = errno;
  if (core) core->tick(program_counter(context));
  errno = before;
}

// The timer of an OS thread. A child process inherits no timers.
struct Timer {
  timer_t id{};
  pid_t process = 0;
  ~Timer() {
    if (process == getpid()) timer_delete(id);
  }
  void set(long slice_ns) {
    if (process != getpid() && !create()) return;
    const timespec slice{0, slice_ns};
    const itimerspec times{slice, slice};
    timer_settime(id, 0, &times, nullptr);
  }

 private:
  bool create() {
    // SIGURG is ignored by default, and few programs use it. The handler may be interrupted by itself, because it
    // returns only when its thread has the next turn.
    static std::once_flag installed;
    std::call_once(installed, [] {
      struct sigaction action {};
      action.sa_sigaction = &on_signal;
      action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
      sigaction(SIGURG, &action, nullptr);
    });
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGURG;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    if (timer_create(CLOCK_MONOTONIC, &event, &id)) return false;
    process = getpid();
    return true;
  }
};

thread_local Timer timer;

}  // namespace

TimeSlices::TimeSlices() { timer.set(kLong_ns); }
TimeSlices::~TimeSlices() { timer.set(0); }
void TimeSlices::shorten() { timer.set(kShort_ns); }

}  // namespace emulator

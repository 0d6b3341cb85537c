// Time slices: a thread of a kernel that runs for long is interrupted, so that others can run. It may wait for a value
// that another thread or block has yet to write, which on a GPU runs at the same time.
#pragma once

namespace emulator {

// While an object of this class lives, `Core::tick` is called on its OS thread from time to time. Machines without a
// known way to read the program counter have no time slices.
class TimeSlices {
 public:
  TimeSlices();
  ~TimeSlices();
  TimeSlices(const TimeSlices&) = delete;
  TimeSlices& operator=(const TimeSlices&) = delete;

  // Makes the slices of this OS thread short until the end of the launch, because one of its threads seems to wait.
  static void shorten();
};

}  // namespace emulator

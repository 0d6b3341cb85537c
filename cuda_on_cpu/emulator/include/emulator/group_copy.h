// memcpy_async of cooperative groups. The threads of the group divide the bytes among them. `wait` waits for all
// copies.
#pragma once
#include "emulator/async_copy.h"
#include "emulator/cooperative_groups.h"

namespace cuda {
// A size in bytes. Its type guarantees the alignment of both pointers of a copy.
template <std::size_t kAlignment>
struct aligned_size_t {
  std::size_t value;
  explicit aligned_size_t(std::size_t value) : value(value) {}
  operator std::size_t() const { return value; }
};
}  // namespace cuda

namespace cooperative_groups {

template <class Group, class Shape>
void memcpy_async(const Group& group, void* to, const void* from, const Shape& bytes) {
  const std::size_t total = bytes, step = 16;
  for (std::size_t at = step * group.thread_rank(); at < total; at += step * group.size())
    emulator::async_copy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, total - at < step ? total - at : step);
  emulator::async_commit();
}
// Copies `count` elements, or `room` elements if the destination has room for fewer.
template <class Group, class T>
void memcpy_async(const Group& group, T* to, std::size_t room, const T* from, std::size_t count) {
  memcpy_async(group, to, from, (count < room ? count : room) * sizeof(T));
}
template <class Group>
void wait(const Group& group) {
  emulator::async_wait(0);
  group.sync();
}
template <unsigned kNewest, class Group>
void wait_prior(const Group& group) {
  emulator::async_wait(kNewest);
  group.sync();
}

}  // namespace cooperative_groups

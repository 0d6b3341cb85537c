// The vectors of thrust, and the system on which an algorithm runs.
#pragma once
#include <csignal>
#include <cstdio>
#include <initializer_list>
#include <iostream>  // as in CUDA: sources rely on it
#include <vector>

#include "emulator/host.h"
#include "emulator/launch.h"
#include "emulator/thrust_iterators.h"

namespace thrust {

template <class T>
class host_vector;

// A vector in device memory. Its elements can be read and written by host code.
template <class T>
class device_vector {
 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using pointer = device_ptr<T>;
  using iterator = device_ptr<T>;
  using const_iterator = device_ptr<const T>;

  device_vector() = default;
  explicit device_vector(std::size_t size) { resize(size); }
  device_vector(std::size_t size, const T& value) { resize(size, value); }
  device_vector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  template <class It>
    requires(!std::is_integral_v<It>)
  device_vector(It first, It last) { assign(first, last); }
  template <class A>
  device_vector(const std::vector<T, A>& values) { assign(values.begin(), values.end()); }
  device_vector(const device_vector& other) { assign(other.begin(), other.end()); }
  device_vector(device_vector&& other) noexcept { swap(other); }
  device_vector& operator=(device_vector other) noexcept { return swap(other), *this; }
  ~device_vector() { emulator::free_memory(data_); }

  iterator begin() { return iterator(data_); }
  iterator end() { return iterator(data_ + size_); }
  const_iterator begin() const { return const_iterator(data_); }
  const_iterator end() const { return const_iterator(data_ + size_); }
  const_iterator cbegin() const { return begin(); }
  const_iterator cend() const { return end(); }
  pointer data() { return begin(); }
  const_iterator data() const { return begin(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return room_; }
  bool empty() const { return !size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  T& back() { return data_[size_ - 1]; }

  void resize(std::size_t size, const T& value = T()) {
    reserve(size);
    if (size > size_) {
      for (std::size_t i = size_; i < size; ++i) new (&data_[i]) T(value);
      emulator::written_by_library(data_ + size_, (size - size_) * sizeof(T));
    }
    size_ = size;
  }
  void reserve(std::size_t room) {
    if (room <= room_) return;
    void* fresh = nullptr;
    if (emulator::allocate(&fresh, room * sizeof(T))) throw std::bad_alloc();
    if (size_) emulator::copy(fresh, data_, size_ * sizeof(T), cudaMemcpyDeviceToDevice);
    emulator::free_memory(data_);
    data_ = static_cast<T*>(fresh);
    room_ = room;
  }
  template <class It>
    requires(!std::is_integral_v<It>)
  void assign(It first, It last) {
    size_ = 0;
    reserve(static_cast<std::size_t>(last - first));
    for (; first != last; ++first) new (&data_[size_++]) T(*first);
    emulator::written_by_library(data_, size_ * sizeof(T));
  }
  void assign(std::size_t size, const T& value) { size_ = 0, resize(size, value); }
  void push_back(const T& value) {
    if (size_ == room_) reserve(2 * room_ + 1);
    resize(size_ + 1, value);
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  void shrink_to_fit() {}
  iterator erase(iterator first, iterator last) {
    const std::ptrdiff_t place = first - begin();
    for (iterator from = last; from != end(); ++from, ++first) *first = *from;
    size_ = static_cast<std::size_t>(first - begin());
    return begin() + place;
  }
  iterator erase(iterator at) { return erase(at, at + 1); }
  void swap(device_vector& other) noexcept { std::swap(data_, other.data_), std::swap(size_, other.size_), std::swap(room_, other.room_); }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0, room_ = 0;
};

template <class T>
class host_vector : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  host_vector() = default;
  host_vector(const std::vector<T>& values) : std::vector<T>(values) {}
  host_vector(const device_vector<T>& values) : std::vector<T>(values.begin(), values.end()) {}
};

// Where an algorithm runs: on the device if its policy or its first iterator says so, else on the host.
struct host_policy {};
struct device_policy {
  cudaStream_t stream = nullptr;
  device_policy on(cudaStream_t which) const { return {which}; }
  template <class Allocator>
  device_policy operator()(Allocator&&) const { return *this; }
};
inline constexpr host_policy host, seq;
inline constexpr device_policy device;
namespace cuda {
inline constexpr device_policy par, par_nosync;
}  // namespace cuda

template <class T>
constexpr bool kIsPolicy = std::is_same_v<std::remove_cvref_t<T>, host_policy> || std::is_same_v<std::remove_cvref_t<T>, device_policy>;

namespace details {

template <class It>
struct IsDevice : std::false_type {};
template <class T>
struct IsDevice<device_ptr<T>> : std::true_type {};
template <class It>
  requires requires(const It& it) { it.base(); }
struct IsDevice<It> : IsDevice<std::remove_cvref_t<decltype(std::declval<It>().base())>> {};
template <class... It>
struct IsDevice<zip_iterator<tuple<It...>>> : std::bool_constant<(IsDevice<It>::value || ...)> {};

template <class T>
void refuse_on_host(const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    if constexpr (!std::is_function_v<std::remove_pointer_t<T>>) {
      if (!argument || !emulator::is_device(argument)) return;
      std::fprintf(stderr, "thrust runs this algorithm on the host, because it gets raw pointers and no policy, and the host cannot access device memory\n");
      std::raise(SIGSEGV);
    }
  }
}
template <class T>
void report(const T& place, std::ptrdiff_t count) {
  if constexpr (requires { place.get(); }) emulator::wrote(place.get(), static_cast<std::size_t>(count));
  else emulator::wrote(place, static_cast<std::size_t>(count));
}

}  // namespace details
}  // namespace thrust

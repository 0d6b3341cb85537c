// Iterators and pointers of thrust. Device memory is ordinary memory here, so a device pointer wraps a plain pointer.
#pragma once
#include <cstddef>
#include <iterator>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace thrust {

using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;

// The base of all iterators here: random access from the three functions that `Derived` has. These are `dereference()`,
// `advance(n)` and `distance_to(other)`.
template <class Derived, class Value, class Reference>
class iterator_facade {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = Value;
  using difference_type = std::ptrdiff_t;
  using reference = Reference;
  using pointer = void;

  Reference operator*() const { return self().dereference(); }
  Reference operator[](difference_type n) const { return *(self() + n); }
  Derived& operator++() { return self().advance(1), self(); }
  Derived& operator--() { return self().advance(-1), self(); }
  Derived operator++(int) { Derived out = self(); return ++*this, out; }
  Derived operator--(int) { Derived out = self(); return --*this, out; }
  Derived& operator+=(difference_type n) { return self().advance(n), self(); }
  Derived& operator-=(difference_type n) { return self().advance(-n), self(); }
  friend Derived operator+(Derived it, difference_type n) { return it += n; }
  friend Derived operator+(difference_type n, Derived it) { return it += n; }
  friend Derived operator-(Derived it, difference_type n) { return it -= n; }
  friend difference_type operator-(const Derived& a, const Derived& b) { return b.distance_to(a); }
  friend bool operator==(const Derived& a, const Derived& b) { return a.distance_to(b) == 0; }
  friend auto operator<=>(const Derived& a, const Derived& b) { return b.distance_to(a) <=> 0; }

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

template <class T>
class device_ptr : public iterator_facade<device_ptr<T>, std::remove_cv_t<T>, T&> {
 public:
  using element_type = T;
  device_ptr(std::nullptr_t = nullptr) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  explicit device_ptr(U* raw) : raw_(raw) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  device_ptr(const device_ptr<U>& other) : raw_(other.get()) {}
  T* get() const { return raw_; }
  T* operator->() const { return raw_; }
  explicit operator bool() const { return raw_; }

  T& dereference() const { return *raw_; }
  void advance(std::ptrdiff_t n) { raw_ += n; }
  std::ptrdiff_t distance_to(const device_ptr& other) const { return other.raw_ - raw_; }

 private:
  T* raw_ = nullptr;
};
template <class T>
device_ptr<T> device_pointer_cast(T* raw) { return device_ptr<T>(raw); }
template <class T>
device_ptr<T> device_pointer_cast(const device_ptr<T>& pointer) { return pointer; }
template <class T>
T* raw_pointer_cast(const device_ptr<T>& pointer) { return pointer.get(); }
template <class T>
T* raw_pointer_cast(T* raw) { return raw; }
template <class T>
T& raw_reference_cast(T& value) { return value; }

template <class T>
class counting_iterator : public iterator_facade<counting_iterator<T>, T, T> {
 public:
  counting_iterator() = default;
  explicit counting_iterator(T value) : value_(value) {}
  T dereference() const { return value_; }
  void advance(std::ptrdiff_t n) { value_ = static_cast<T>(value_ + n); }
  std::ptrdiff_t distance_to(const counting_iterator& other) const { return static_cast<std::ptrdiff_t>(other.value_) - static_cast<std::ptrdiff_t>(value_); }

 private:
  T value_{};
};
template <class T>
counting_iterator<T> make_counting_iterator(T value) { return counting_iterator<T>(value); }

template <class T>
class constant_iterator : public iterator_facade<constant_iterator<T>, T, const T&> {
 public:
  constant_iterator() = default;
  constant_iterator(const T& value, std::ptrdiff_t place = 0) : value_(value), place_(place) {}
  const T& dereference() const { return value_; }
  void advance(std::ptrdiff_t n) { place_ += n; }
  std::ptrdiff_t distance_to(const constant_iterator& other) const { return other.place_ - place_; }

 private:
  T value_{};
  std::ptrdiff_t place_ = 0;
};
template <class T>
constant_iterator<T> make_constant_iterator(T value) { return {value}; }

// The base of iterators that stand at a place of another iterator.
template <class Derived, class It, class Value, class Reference>
class iterator_adaptor : public iterator_facade<Derived, Value, Reference> {
 public:
  iterator_adaptor() = default;
  explicit iterator_adaptor(It base) : base_(base) {}
  const It& base() const { return base_; }
  void advance(std::ptrdiff_t n) { base_ += n; }
  std::ptrdiff_t distance_to(const Derived& other) const { return other.base() - base_; }

 private:
  It base_{};
};

template <class Function, class It>
using transformed_t = std::invoke_result_t<const Function&, typename std::iterator_traits<It>::reference>;
template <class Function, class It, class Reference = void, class Value = void>
class transform_iterator : public iterator_adaptor<transform_iterator<Function, It, Reference, Value>, It, std::remove_cvref_t<transformed_t<Function, It>>, transformed_t<Function, It>> {
  using Base = iterator_adaptor<transform_iterator, It, std::remove_cvref_t<transformed_t<Function, It>>, transformed_t<Function, It>>;

 public:
  transform_iterator(It base, Function function) : Base(base), function_(function) {}
  explicit transform_iterator(It base) : Base(base) {}
  transform_iterator(const transform_iterator&) = default;
  transform_iterator& operator=(const transform_iterator& other) { return static_cast<Base&>(*this) = other, *this; }  // a lambda has no assignment
  transformed_t<Function, It> dereference() const { return function_(*this->base()); }

 private:
  Function function_;
};
template <class It, class Function>
transform_iterator<Function, It> make_transform_iterator(It base, Function function) { return {base, function}; }

template <class Values, class Places>
class permutation_iterator : public iterator_adaptor<permutation_iterator<Values, Places>, Places, typename std::iterator_traits<Values>::value_type, typename std::iterator_traits<Values>::reference> {
  using Base = iterator_adaptor<permutation_iterator, Places, typename std::iterator_traits<Values>::value_type, typename std::iterator_traits<Values>::reference>;

 public:
  permutation_iterator(Values values, Places places) : Base(places), values_(values) {}
  typename Base::reference dereference() const { return values_[*this->base()]; }

 private:
  Values values_;
};
template <class Values, class Places>
permutation_iterator<Values, Places> make_permutation_iterator(Values values, Places places) { return {values, places}; }

template <class It>
class reverse_iterator : public iterator_facade<reverse_iterator<It>, typename std::iterator_traits<It>::value_type, typename std::iterator_traits<It>::reference> {
 public:
  explicit reverse_iterator(It base) : base_(base) {}
  const It& base() const { return base_; }
  typename std::iterator_traits<It>::reference dereference() const { return *(base_ - 1); }
  void advance(std::ptrdiff_t n) { base_ -= n; }
  std::ptrdiff_t distance_to(const reverse_iterator& other) const { return base_ - other.base_; }

 private:
  It base_;
};
template <class It>
reverse_iterator<It> make_reverse_iterator(It base) { return reverse_iterator<It>(base); }

// What is stored through this iterator is dropped.
struct Dropped {
  template <class T>
  const Dropped& operator=(const T&) const { return *this; }
};
template <class = void>
class discard_iterator : public iterator_facade<discard_iterator<>, Dropped, Dropped> {
 public:
  explicit discard_iterator(std::ptrdiff_t place = 0) : place_(place) {}
  Dropped dereference() const { return {}; }
  void advance(std::ptrdiff_t n) { place_ += n; }
  std::ptrdiff_t distance_to(const discard_iterator& other) const { return other.place_ - place_; }

 private:
  std::ptrdiff_t place_;
};
inline discard_iterator<> make_discard_iterator(std::ptrdiff_t place = 0) { return discard_iterator<>(place); }

template <class Iterators>
class zip_iterator;
template <class... It>
class zip_iterator<tuple<It...>>
    : public iterator_facade<zip_iterator<tuple<It...>>, tuple<typename std::iterator_traits<It>::value_type...>, tuple<typename std::iterator_traits<It>::reference...>> {
 public:
  zip_iterator() = default;
  explicit zip_iterator(const tuple<It...>& all) : all_(all) {}
  const tuple<It...>& get_iterator_tuple() const { return all_; }
  tuple<typename std::iterator_traits<It>::reference...> dereference() const {
    return std::apply([](const auto&... each) { return tuple<typename std::iterator_traits<It>::reference...>(*each...); }, all_);
  }
  void advance(std::ptrdiff_t n) { std::apply([n](auto&... each) { ((each += n), ...); }, all_); }
  std::ptrdiff_t distance_to(const zip_iterator& other) const { return get<0>(other.all_) - get<0>(all_); }

 private:
  tuple<It...> all_;
};
template <class... It>
zip_iterator<tuple<It...>> make_zip_iterator(const tuple<It...>& all) { return zip_iterator<tuple<It...>>(all); }
template <class... It>
  requires(sizeof...(It) > 1)
zip_iterator<tuple<It...>> make_zip_iterator(It... each) { return zip_iterator<tuple<It...>>(tuple<It...>(each...)); }

// Calls a function with the elements of a tuple as arguments.
template <class Function>
struct zip_function {
  Function function;
  template <class Tuple>
  decltype(auto) operator()(Tuple&& all) const { return std::apply(function, std::forward<Tuple>(all)); }
};
template <class Function>
zip_function<Function> make_zip_function(Function function) { return {function}; }

using std::advance;
using std::distance;

}  // namespace thrust

// Python bindings for the types that most extensions use. They do without pybind11, because its headers take longer to
// compile than the kernel. If a function has another type, the extension is built again with pybind11.
#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

struct _object;  // PyObject

namespace cuda_on_cpu::python {

using Object = _object*;
struct Arguments {
  Object tuple;
  long count() const;
  Object operator[](long position) const;
};

// `read` converts a Python object to a C++ value, and raises TypeError for a wrong type. `write` converts a C++ value to
// a Python object, and returns a new reference.
void read(Object from, at::Tensor& to);
void read(Object from, long long& to);
void read(Object from, double& to);
void read(Object from, bool& to);
void read(Object from, std::string& to);
// Raises TypeError if `fits` is false: `number` is then outside the range of the parameter's C++ type. pybind11 raises
// the same exception.
void check_fits(bool fits, long long number);
bool is_none(Object object);
long length(Object sequence);
Object item(Object sequence, long position);  // returns a borrowed reference, valid while the sequence exists

Object write(const at::Tensor& value);
Object write(long long value);
Object write(double value);
Object write(bool value);
Object write(const std::string& value);
Object none();
Object list(std::initializer_list<Object> items, bool as_tuple);
Object list(const std::vector<Object>& items);

template <class>
inline constexpr bool binding_unsupported = false;

template <class T>
T get(Object from) {
  if constexpr (std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::string> || std::is_same_v<T, bool>) {
    T value;
    read(from, value);
    return value;
  } else if constexpr (std::is_integral_v<T>) {
    long long value;
    read(from, value);
    const T narrow = static_cast<T>(value);
    check_fits(static_cast<long long>(narrow) == value && (narrow < T(0)) == (value < 0), value);
    return narrow;
  } else if constexpr (std::is_floating_point_v<T>) {
    double value;
    read(from, value);
    return static_cast<T>(value);
  } else if constexpr (requires(T t) { t.has_value(); }) {
    return is_none(from) ? T() : T(get<typename T::value_type>(from));
  } else if constexpr (requires(T t, typename T::value_type v) { t.push_back(v); }) {
    T values;
    for (long i = 0; i < length(from); ++i) values.push_back(get<typename T::value_type>(item(from, i)));
    return values;
  } else {
    static_assert(binding_unsupported<T>, "binding_unsupported");
  }
}

template <class T>
Object put(const T& value) {
  if constexpr (std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::string> || std::is_same_v<T, bool>) {
    return write(value);
  } else if constexpr (std::is_integral_v<T>) {
    return write(static_cast<long long>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return write(static_cast<double>(value));
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return std::apply([](const auto&... items) { return list({put(items)...}, true); }, value);
  } else if constexpr (requires(T t) { t.push_back(t.front()); }) {
    std::vector<Object> items;
    for (const auto& each : value) items.push_back(put(each));
    return list(items);
  } else {
    static_assert(binding_unsupported<T>, "binding_unsupported");
  }
}

void check_count(const Arguments& arguments, long expected, const char* function);

template <class Result, class... Parameters, std::size_t... I>
Object call(Result (*function)(Parameters...), const Arguments& arguments, std::index_sequence<I...>) {
  if constexpr (std::is_void_v<Result>) {
    function(get<std::decay_t<Parameters>>(arguments[I])...);
    return none();
  } else {
    return put<std::decay_t<Result>>(function(get<std::decay_t<Parameters>>(arguments[I])...));
  }
}

template <class Result, class... Parameters>
constexpr long arity(Result (*)(Parameters...)) { return sizeof...(Parameters); }

template <auto Function>
Object thunk(const Arguments& arguments, const char* name) {
  check_count(arguments, arity(Function), name);
  return call(Function, arguments, std::make_index_sequence<arity(Function)>());
}

struct Function {
  const char *name, *doc;
  Object (*thunk)(const Arguments&, const char*);
};
Object module(const char* name, std::initializer_list<Function> functions);

}  // namespace cuda_on_cpu::python

#define EXTENSION_CONCATENATE_(a, b) a##b
#define EXTENSION_CONCATENATE(a, b) EXTENSION_CONCATENATE_(a, b)
#define EXTENSION_STRING_(a) #a
#define EXTENSION_STRING(a) EXTENSION_STRING_(a)
#define EXTENSION_FUNCTION(function, doc) {#function, doc, &::cuda_on_cpu::python::thunk<&function>}
#define EXTENSION_MODULE(...)                                                                                  \
  extern "C" __attribute__((visibility("default"))) _object* EXTENSION_CONCATENATE(PyInit_, TORCH_EXTENSION_NAME)() { \
    return ::cuda_on_cpu::python::module(EXTENSION_STRING(TORCH_EXTENSION_NAME), {__VA_ARGS__});                     \
  }

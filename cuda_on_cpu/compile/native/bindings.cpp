// The part of the Python bindings that needs Python's headers. It is compiled once for all candidates.
#include "cuda_on_cpu/bindings.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace cuda_on_cpu::python {
namespace {

[[noreturn]] void wrong_type(const char* wanted, PyObject* got) {
  TORCH_CHECK_TYPE(false, "incompatible function arguments: expected ", wanted, ", got ", Py_TYPE(got)->tp_name);
  std::abort();  // never reached: the check above always throws
}

// Adds to an error the place of the check in the candidate's source that raised it. torch leaves the place out of the
// message. Places in torch's sources are paths, and those in a candidate's source are neutral names without a folder.
void add_place(c10::Error& error) {
  if (!error.backtrace()) return;
  const std::string trace = error.backtrace()->get();  // Exception raised from FUNCTION at FILE:LINE (most recent ...
  const auto end = trace.find(" (most recent call first)"), at = trace.rfind(" at ", end);
  if (end == std::string::npos || at == std::string::npos) return;
  const std::string place = trace.substr(at + 4, end - at - 4);
  if (place.find('/') == std::string::npos) error.add_context("raised at " + place);
}

// torch's conversion of tensors for pybind11. Its functions are in torch's library, so that autograd's headers, which take
// as long to read as the rest of this file takes to compile, are not needed.
using TensorCaster = pybind11::detail::type_caster<at::Tensor>;

constexpr const char* kFunction = "cuda_on_cpu.function";

PyObject* invoke(PyObject* self, PyObject* arguments) {
  HANDLE_TH_ERRORS
  const auto* function = static_cast<const Function*>(PyCapsule_GetPointer(self, kFunction));
  try {
    return function->thunk(Arguments{arguments}, function->name);
  } catch (c10::Error& error) {
    add_place(error);
    throw;
  }
  END_HANDLE_TH_ERRORS
}

}  // namespace

long Arguments::count() const { return PyTuple_GET_SIZE(tuple); }
Object Arguments::operator[](long position) const { return PyTuple_GET_ITEM(tuple, position); }

void read(Object from, at::Tensor& to) {
  TensorCaster caster;
  if (!caster.load(from, false)) wrong_type("torch.Tensor", from);
  to = static_cast<at::Tensor&>(caster);
}
void read(Object from, long long& to) {
  if (!PyIndex_Check(from)) wrong_type("int", from);
  to = PyLong_AsLongLong(from);
  if (to == -1 && PyErr_Occurred()) throw python_error();
}
void read(Object from, double& to) {
  to = PyFloat_AsDouble(from);
  if (to == -1.0 && PyErr_Occurred()) throw python_error();
}
void read(Object from, bool& to) {
  if (!PyBool_Check(from)) wrong_type("bool", from);
  to = from == Py_True;
}
void read(Object from, std::string& to) {
  if (!PyUnicode_Check(from)) wrong_type("str", from);
  Py_ssize_t bytes = 0;
  const char* text = PyUnicode_AsUTF8AndSize(from, &bytes);
  if (!text) throw python_error();
  to.assign(text, static_cast<std::size_t>(bytes));
}
void check_fits(bool fits, long long number) {
  TORCH_CHECK_TYPE(fits, "incompatible function arguments: ", number, " is outside the range of its C++ type");
}
bool is_none(Object object) { return object == Py_None; }
long length(Object sequence) {
  if (!PyList_Check(sequence) && !PyTuple_Check(sequence)) wrong_type("a list", sequence);
  return PySequence_Size(sequence);
}
Object item(Object sequence, long position) { return PySequence_Fast_GET_ITEM(sequence, position); }

Object write(const at::Tensor& value) { return TensorCaster::cast(value, pybind11::return_value_policy::move, {}).ptr(); }
Object write(long long value) { return PyLong_FromLongLong(value); }
Object write(double value) { return PyFloat_FromDouble(value); }
Object write(bool value) { return PyBool_FromLong(value); }
Object write(const std::string& value) { return PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size())); }
Object none() { Py_RETURN_NONE; }
Object list(const std::vector<Object>& items) {
  PyObject* out = PyList_New(static_cast<Py_ssize_t>(items.size()));
  for (std::size_t i = 0; i < items.size(); ++i) PyList_SET_ITEM(out, static_cast<Py_ssize_t>(i), items[i]);
  return out;
}
Object list(std::initializer_list<Object> items, bool as_tuple) {
  PyObject* out = list(std::vector<Object>(items));
  if (!as_tuple) return out;
  PyObject* tuple = PyList_AsTuple(out);
  Py_DECREF(out);
  return tuple;
}

void check_count(const Arguments& arguments, long expected, const char* function) {
  TORCH_CHECK_TYPE(arguments.count() == expected, function, "() takes ", expected, " arguments, got ", arguments.count());
}

Object module(const char* name, std::initializer_list<Function> functions) {
  // An extension's module is never unloaded, so its definitions are never freed.
  auto* definition = new PyModuleDef{PyModuleDef_HEAD_INIT, name, nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  PyObject* module = PyModule_Create(definition);
  for (const Function& each : functions) {
    auto* function = new Function(each);
    auto* method = new PyMethodDef{function->name, &invoke, METH_VARARGS, function->doc};
    PyObject* self = PyCapsule_New(function, kFunction, nullptr);
    PyModule_AddObject(module, function->name, PyCFunction_NewEx(method, self, nullptr));
    Py_DECREF(self);
  }
  return module;
}

}  // namespace cuda_on_cpu::python

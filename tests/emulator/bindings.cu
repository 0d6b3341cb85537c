// Functions of every argument type that extensions use, bound without pybind11.
#include <torch/extension.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

torch::Tensor twice(const torch::Tensor& x) {
    return x * 2;
}

int64_t plus_one(int64_t n) {
    return n + 1;
}

int narrow(int n) {
    return n;
}

unsigned unsigned_narrow(unsigned n) {
    return n;
}

double product(double x, float y) {
    return x * y;
}

bool negation(bool b) {
    return !b;
}

std::string greeting(const std::string& name) {
    return "hello " + name;
}

void nothing() {
}

int64_t count(std::optional<torch::Tensor> x) {
    return x.has_value() ? x->numel() : -1;
}

int64_t total(std::vector<int64_t> numbers) {
    int64_t sum = 0;
    for (const auto n : numbers) sum += n;
    return sum;
}

std::vector<torch::Tensor> halves(torch::Tensor x) {
    return x.chunk(2);
}

std::tuple<torch::Tensor, int64_t, std::vector<double>> mixed(std::vector<torch::Tensor> all) {
    return {all.at(0), static_cast<int64_t>(all.size()), {0.5, 1.5}};
}

torch::Tensor fails(torch::Tensor x, std::string how) {
    TORCH_CHECK(how != "check", "x has ", x.dim(), " dimensions");
    TORCH_CHECK_VALUE(how != "value", "not a value");
    TORCH_CHECK_INDEX(how != "index", "no such index");
    TORCH_CHECK_NOT_IMPLEMENTED(how != "not implemented", "not yet");
    if (how == "standard") throw std::runtime_error("from the standard library");
    return x.view({-1, x.numel() + 1});
}

// Replaces ATen/Context.h, which torch's list of operators includes, by the declarations that tensors need. torch's own
// header has torch's global settings, whose templates take a fifth of a small source's compile time. A source that names
// one of them gets torch's own header in addition.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/ATenGeneral.h>
#include <ATen/core/DeprecatedTypeProperties.h>
#include <ATen/core/Generator.h>
#include <c10/util/irange.h>

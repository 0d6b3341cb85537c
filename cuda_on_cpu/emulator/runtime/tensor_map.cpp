// Encodes tensor maps, and copies boxes of tensors.
#include <algorithm>
#include <cstring>

#include "core.h"
#include "cuda.h"
#include "emulator/memory.h"
#include "emulator/profile.h"
#include "emulator/sanitize.h"

namespace emulator {
namespace {

constexpr std::uint32_t kMark = 0x54454E53;

struct Map {
  std::uint64_t address, strides[4];  // the strides in bytes, without that of the innermost dimension
  std::uint32_t dims[5];              // minus 1
  std::uint32_t mark;
  std::uint16_t box[5];
  std::uint8_t steps[5], type, rank, swizzle, fills_nan;
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap));

constexpr unsigned kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};  // by CUtensorMapDataType
unsigned bytes_of(const Map& map) { return kBytes[map.type]; }

// The number of elements of a box along a dimension, of which only each `steps`-th is copied.
unsigned count(const Map& map, unsigned i) { return (map.box[i] + map.steps[i] - 1u) / map.steps[i]; }

std::uint32_t box_bytes(const Map& map) {
  std::uint32_t bytes = bytes_of(map);
  for (unsigned i = 0; i < map.rank; ++i) bytes *= count(map, i);
  return bytes;
}

constexpr unsigned kRowBytes[] = {16, 32, 64, 128};  // by CUtensorMapSwizzle

// Calls each(shared, global, bytes) for the elements of a box; `global` is null outside of the tensor.
template <class Each>
void for_elements(const Map& map, const std::int32_t* first, char* shared, Each each) {
  const unsigned size = bytes_of(map);
  unsigned at[5] = {};
  const std::uint32_t total = box_bytes(map) / size;
  for (std::uint32_t n = 0; n < total; ++n, shared += size) {
    std::int64_t offset = 0;
    bool inside = true;
    for (unsigned i = 0; i < map.rank; ++i) {
      const std::int64_t place = first[i] + static_cast<std::int64_t>(at[i]) * map.steps[i];
      inside &= place >= 0 && place <= map.dims[i];
      offset += place * static_cast<std::int64_t>(i ? map.strides[i - 1] : size);
    }
    each(swizzled(shared, kRowBytes[map.swizzle]), inside ? reinterpret_cast<char*>(map.address) + offset : nullptr, size);
    for (unsigned i = 0; i < map.rank && ++at[i] == count(map, i); ++i) at[i] = 0;
  }
}

void fill_outside(char* to, const Map& map) {
  std::memset(to, 0, bytes_of(map));
  if (!map.fills_nan) return;
  const std::uint64_t nan = map.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ? 0x7FFF : map.type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? 0x7FFF : bytes_of(map) == 8 ? 0x7FFFFFFFFFFFFFFFull : 0x7FFFFFFF;
  std::memcpy(to, &nan, bytes_of(map));
}

// Returns the map of a tile; without a mark if a thread may not use it. An H200 stops at a box whose first element in a row
// is at no multiple of 16 bytes, even outside of the tensor, and at a store to negative coordinates (docs/validation.md).
Map map_of(const Tile& tile, const void* shared, bool stores, SourcePlace place) {
  Map map;
  std::memcpy(&map, tile.map, sizeof map);
  const bool negative = stores && std::any_of(tile.at, tile.at + tile.rank, [](std::int32_t at) { return at < 0; });
  const char* wrong = map.mark != kMark                                    ? "a tensor copy with a tensor map that was not encoded: pass what cuTensorMapEncodeTiled filled, as const __grid_constant__"
                      : map.rank != tile.rank                              ? "a tensor copy with another number of coordinates than the tensor has dimensions"
                      : reinterpret_cast<std::uintptr_t>(shared) % 128     ? "a tensor copy whose address in shared memory is no multiple of 128: declare the array with alignas(128), or 1024 with a swizzle of 128 bytes"
                      : tile.at[0] * std::int64_t{bytes_of(map)} % 16      ? "a tensor copy whose first coordinate, in bytes, is no multiple of 16: move the box to such a place"
                      : negative                                           ? "a tensor store with a negative coordinate: begin inside of the tensor"
                                                                           : nullptr;
  if (wrong) fail_at(place, wrong), map.mark = 0;
  return map;
}

// Reports the elements of a box that are inside of the tensor to the sanitizer and to a profile.
void report(const Map& map, const Tile& tile, SourcePlace place, bool writes, bool updates = false) {
  if (!sanitize::on && !profile::on) return;
  const char *begin = nullptr, *end = nullptr;  // neighbours
  std::uint32_t inside = 0;
  const auto flush = [&] {
    if (begin != end && sanitize::on) writes ? sanitize::unit_writes(begin, end - begin, place, updates) : sanitize::unit_reads(begin, end - begin, place);
  };
  for_elements(map, tile.at, nullptr, [&](char*, const char* global, unsigned size) {
    if (!global) return;
    inside += size;
    if (global == end) return static_cast<void>(end += size);
    flush();
    begin = global, end = global + size;
  });
  flush();
  if (profile::on) profile::copied(place, writes ? 0 : inside, writes ? inside : 0);
}

BulkType type_of(const Map& map) {
  constexpr BulkType kTypes[] = {BulkType::kU32, BulkType::kU32, BulkType::kU32, BulkType::kS32, BulkType::kU64, BulkType::kS64, BulkType::kHalf, BulkType::kFloat,
                                 BulkType::kDouble, BulkType::kBfloat16, BulkType::kFloat, BulkType::kFloat, BulkType::kFloat};
  return kTypes[map.type];
}

}  // namespace

void tensor_load(void* to, const Tile& tile, void* barrier, SourcePlace place, std::uint32_t mask) {
  const Map map = map_of(tile, to, false, place);
  if (!map.mark) return;
  report(map, tile, place, false);
  add_load(to, barrier, mask, box_bytes(map), place, [=](void* there) {
    for_elements(map, tile.at, static_cast<char*>(there), [&](char* shared, const char* global, unsigned size) {
      global ? static_cast<void>(std::memcpy(shared, global, size)) : fill_outside(shared, map);
    });
  });
}

void tensor_store(const Tile& tile, const void* from, SourcePlace place, const Reduction* reduction) {
  const Map map = map_of(tile, from, true, place);
  if (!map.mark) return;
  const bool reduces = reduction;
  const Reduction by{reduces ? reduction->operation : BulkOperation::kAdd, type_of(map)};
  add_store(from, box_bytes(map), place, [=] {
    for_elements(map, tile.at, static_cast<char*>(const_cast<void*>(from)), [&](char* shared, char* global, unsigned size) {
      if (global) reduces ? reduce_bytes(global, shared, size, by) : static_cast<void>(std::memcpy(global, shared, size));
    });
  });
  report(map, tile, place, true, reduces);
}

}  // namespace emulator

using namespace emulator;

namespace {
// The caller's line is not known here. It is found by the name in its source (compile/candidate_file.py).
CUresult refuse(const char* what) {
  lack_in_launch(what, "cuda.h", 0);
  return CUDA_ERROR_NOT_SUPPORTED;
}
}  // namespace

CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const int*, const int*, cuuint32_t, cuuint32_t, const cuuint32_t*,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return refuse("cuTensorMapEncodeIm2col");
}

// The limits are those of the function's documentation.
CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return refuse(interleave == CU_TENSOR_MAP_INTERLEAVE_16B ? "CU_TENSOR_MAP_INTERLEAVE_16B" : "CU_TENSOR_MAP_INTERLEAVE_32B");
  if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B) return refuse("CU_TENSOR_MAP_SWIZZLE_128B_ATOM");
  if (type > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ) return refuse("CU_TENSOR_MAP_DATA_TYPE_16U");
  if (rank < 1 || rank > 5 || !address || reinterpret_cast<std::uintptr_t>(address) % 16) return CUDA_ERROR_INVALID_VALUE;
  Map map{};
  map.address = reinterpret_cast<std::uint64_t>(address);
  map.mark = kMark;
  map.type = static_cast<std::uint8_t>(type), map.rank = static_cast<std::uint8_t>(rank), map.swizzle = static_cast<std::uint8_t>(swizzle);
  map.fills_nan = fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
  const std::uint64_t inner = std::uint64_t{box[0]} * bytes_of(map);
  bool wrong = inner % 16 || (swizzle && inner > kRowBytes[swizzle]);
  for (unsigned i = 0; i < rank; ++i) {
    const std::uint64_t step = element_strides[i];
    wrong |= dims[i] < 1 || dims[i] > 1ull << 32 || box[i] < 1 || box[i] > 256 || step < 1 || step > 8;
    if (i) wrong |= strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40, map.strides[i - 1] = strides[i - 1];
    map.dims[i] = static_cast<std::uint32_t>(dims[i] - 1), map.box[i] = static_cast<std::uint16_t>(box[i]), map.steps[i] = static_cast<std::uint8_t>(step);
  }
  if (wrong) return CUDA_ERROR_INVALID_VALUE;
  std::memset(static_cast<void*>(out), 0, sizeof *out);
  std::memcpy(static_cast<void*>(out), &map, sizeof map);
  return CUDA_SUCCESS;
}

namespace {
struct Error {
  CUresult error;
  const char *name, *text;
};
constexpr Error kErrors[] = {{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
                             {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
                             {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
                             {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
                             {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"}};
CUresult find(CUresult error, const char** out, const char* Error::*what) {
  for (const Error& each : kErrors)
    if (each.error == error) return *out = each.*what, CUDA_SUCCESS;
  return *out = nullptr, CUDA_ERROR_INVALID_VALUE;
}
}  // namespace

namespace {
template <class T>
CUresult set_all(CUdeviceptr address, T value, std::size_t count, CUstream stream) {
  auto* const start = reinterpret_cast<T*>(address);
  if (!is_device(start)) return CUDA_ERROR_INVALID_VALUE;
  const auto work = [=] { return std::fill(start, start + count, value), synchronize(); };
  return at_once_in_stream(stream, work) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}
}  // namespace
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, std::size_t count, CUstream stream) { return set_all(address, value, count, stream); }
CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, std::size_t count, CUstream stream) { return set_all(address, value, count, stream); }
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, std::size_t count, CUstream stream) { return set_all(address, value, count, stream); }
CUresult cuGetErrorString(CUresult error, const char** text) { return find(error, text, &Error::text); }
CUresult cuGetErrorName(CUresult error, const char** name) { return find(error, name, &Error::name); }

namespace emulator {
void* driver_function(const char* name) {
  if (!std::strcmp(name, "cuTensorMapEncodeIm2col")) return reinterpret_cast<void*>(&cuTensorMapEncodeIm2col);
  return std::strcmp(name, "cuTensorMapEncodeTiled") ? nullptr : reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
}
}  // namespace emulator

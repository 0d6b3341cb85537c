// Texture objects over linear memory.
#include "emulator/textures.h"

#include <cstdint>
#include <mutex>
#include <set>

#include "emulator/scheduler.h"

namespace emulator {
namespace {

struct Texture {
  const char* data;
  std::size_t bytes, element;
};
std::mutex mutex;
std::set<cudaTextureObject_t>& live() {
  static auto* all = new std::set<cudaTextureObject_t>;
  return *all;
}

}  // namespace

cudaError_t create_texture(cudaTextureObject_t* out, const cudaResourceDesc& resource, const cudaTextureDesc& description) {
  if (resource.resType != cudaResourceTypeLinear || description.readMode != cudaReadModeElementType) {
    fail(cudaErrorNotSupported, "the emulation only has textures over linear memory that return the elements as they are");
    return synchronize();
  }
  const auto& linear = resource.res.linear;
  const auto element = static_cast<std::size_t>(linear.desc.x + linear.desc.y + linear.desc.z + linear.desc.w) / 8;
  if (!element || !is_device(linear.devPtr) || reinterpret_cast<std::uintptr_t>(linear.devPtr) % 16) return give(cudaErrorInvalidValue);
  *out = reinterpret_cast<cudaTextureObject_t>(new Texture{static_cast<const char*>(linear.devPtr), linear.sizeInBytes, element});
  std::lock_guard lock(mutex);
  live().insert(*out);
  return synchronize();
}

cudaError_t destroy_texture(cudaTextureObject_t texture) {
  std::lock_guard lock(mutex);
  if (!live().erase(texture)) return give(cudaErrorInvalidValue);
  delete reinterpret_cast<Texture*>(texture);
  return synchronize();
}

const void* texel(cudaTextureObject_t texture, int place, std::size_t bytes) {
  bool known;
  {
    std::lock_guard lock(mutex);
    known = live().count(texture);
  }
  if (!known) return fail_in_kernel("a fetch from a texture object that does not exist"), nullptr;
  const auto& all = *reinterpret_cast<const Texture*>(texture);
  if (bytes > all.element) return fail_in_kernel("a fetch of more components than the texture's elements have"), nullptr;
  const bool inside = place >= 0 && (static_cast<std::size_t>(place) + 1) * all.element <= all.bytes;
  return inside ? all.data + static_cast<std::size_t>(place) * all.element : nullptr;
}

}  // namespace emulator

// Texture objects over linear memory, for plain fetches. A fetch outside the memory returns zeros.
#pragma once
#include <cstddef>
#include <type_traits>

#include "emulator/host.h"
#include "emulator/memory.h"
#include "emulator/vectors.h"

typedef unsigned long long cudaTextureObject_t;
typedef struct cudaArray* cudaArray_t;
typedef struct cudaMipmappedArray* cudaMipmappedArray_t;
enum cudaResourceType { cudaResourceTypeArray, cudaResourceTypeMipmappedArray, cudaResourceTypeLinear, cudaResourceTypePitch2D };
enum cudaChannelFormatKind { cudaChannelFormatKindSigned, cudaChannelFormatKindUnsigned, cudaChannelFormatKindFloat, cudaChannelFormatKindNone };
enum cudaTextureAddressMode { cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder };
enum cudaTextureFilterMode { cudaFilterModePoint, cudaFilterModeLinear };
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
struct cudaChannelFormatDesc {
  int x, y, z, w;  // bits of each component
  cudaChannelFormatKind f;
};
struct cudaResourceDesc {
  cudaResourceType resType;
  union {
    struct {
      cudaArray_t array;
    } array;
    struct {
      cudaMipmappedArray_t mipmap;
    } mipmap;
    struct {
      void* devPtr;
      cudaChannelFormatDesc desc;
      std::size_t sizeInBytes;
    } linear;
    struct {
      void* devPtr;
      cudaChannelFormatDesc desc;
      std::size_t width, height, pitchInBytes;
    } pitch2D;
  } res;
};
struct cudaTextureDesc {
  cudaTextureAddressMode addressMode[3];
  cudaTextureFilterMode filterMode;
  cudaTextureReadMode readMode;
  int sRGB;
  float borderColor[4];
  int normalizedCoords;
  unsigned maxAnisotropy;
  cudaTextureFilterMode mipmapFilterMode;
  float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
  int disableTrilinearOptimization, seamlessCubemap;
};
struct cudaResourceViewDesc;

namespace emulator {

template <class T>
cudaChannelFormatDesc channels() {
  const auto of = [](auto component, int count) {
    using C = decltype(component);
    const int bits = 8 * sizeof(C);
    return cudaChannelFormatDesc{bits, count > 1 ? bits : 0, count > 2 ? bits : 0, count > 3 ? bits : 0,
                                 std::is_floating_point_v<C> ? cudaChannelFormatKindFloat : std::is_signed_v<C> ? cudaChannelFormatKindSigned : cudaChannelFormatKindUnsigned};
  };
  if constexpr (std::is_arithmetic_v<T>) return of(T{}, 1);
  else return of(decltype(T::x){}, sizeof(T) / sizeof(T::x));
}

cudaError_t create_texture(cudaTextureObject_t* out, const cudaResourceDesc& resource, const cudaTextureDesc& description);
cudaError_t destroy_texture(cudaTextureObject_t texture);
// The address of an element; null if the texture does not have it. Reports a fetch of more bytes than an element has.
const void* texel(cudaTextureObject_t texture, int place, std::size_t bytes);

}  // namespace emulator

#pragma GCC visibility push(hidden)
inline cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) { return {x, y, z, w, kind}; }
template <class T>
cudaChannelFormatDesc cudaCreateChannelDesc() { return emulator::channels<T>(); }
inline cudaError_t cudaCreateTextureObject(cudaTextureObject_t* out, const cudaResourceDesc* resource, const cudaTextureDesc* description, const cudaResourceViewDesc*) {
  return emulator::create_texture(out, *resource, *description);
}
inline cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture) { return emulator::destroy_texture(texture); }
#pragma GCC visibility pop

template <class T>
T tex1Dfetch(cudaTextureObject_t texture, int place) {
  const void* at = emulator::texel(texture, place, sizeof(T));
  return at ? *static_cast<const T*>(at) : T{};
}
template <class T>
void tex1Dfetch(T* out, cudaTextureObject_t texture, int place) { *out = tex1Dfetch<T>(texture, place); }

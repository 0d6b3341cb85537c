// torch's streams. The work of all streams is done in program order.
#pragma once
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/cuda/CUDAFunctions.h>

#pragma GCC visibility push(hidden)
namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(Stream stream = Stream(Stream::DEFAULT, Device(kCUDA, 0))) : stream_(stream) {}
  operator cudaStream_t() const { return stream(); }
  operator Stream() const { return stream_; }
  cudaStream_t stream() const { return emulator::torch_stream(); }
  Stream unwrap() const { return stream_; }
  Device device() const { return stream_.device(); }
  DeviceIndex device_index() const { return stream_.device_index(); }
  StreamId id() const { return stream_.id(); }
  bool query() const { return true; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream())); }
  bool operator==(const CUDAStream& other) const { return stream_ == other.stream_; }

 private:
  Stream stream_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return CUDAStream(); }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return CUDAStream(); }
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) { return CUDAStream(); }
inline void setCurrentCUDAStream(CUDAStream) {}

}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;
}  // namespace at::cuda
#pragma GCC visibility pop

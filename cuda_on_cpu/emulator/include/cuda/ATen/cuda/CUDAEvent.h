// PyTorch's events. They use the events of the CUDA runtime.
#pragma once
#include <c10/cuda/CUDAStream.h>

#include <utility>

#pragma GCC visibility push(hidden)
namespace at::cuda {

class CUDAEvent {
 public:
  explicit CUDAEvent(unsigned flags = cudaEventDisableTiming) { C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags)); }
  ~CUDAEvent() {
    if (event_) cudaEventDestroy(event_);
  }
  CUDAEvent(const CUDAEvent&) = delete;
  CUDAEvent(CUDAEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)), recorded_(other.recorded_) {}
  operator cudaEvent_t() const { return event_; }
  cudaEvent_t event() const { return event_; }
  bool isCreated() const { return event_; }
  bool query() const { return true; }
  void record() { record(getCurrentCUDAStream()); }
  void record(const CUDAStream& stream) {
    C10_CUDA_CHECK(cudaEventRecord(event_, stream));
    recorded_ = true;
  }
  void recordOnce(const CUDAStream& stream) {
    if (!recorded_) record(stream);
  }
  void block(const CUDAStream& stream) { C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event_)); }
  void synchronize() const { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
  float elapsed_time(const CUDAEvent& end) const {
    float ms = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&ms, event_, end.event_));
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
  bool recorded_ = false;
};

}  // namespace at::cuda
#pragma GCC visibility pop

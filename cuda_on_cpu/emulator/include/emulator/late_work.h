// Work that is done later than its call, as CUDA allows: the work of streams that a program made, and copies to pinned
// memory. In one call of three, all work is done at once; in the others, when something waits for it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "emulator/host.h"

namespace emulator {

using Work = std::function<cudaError_t()>;

extern std::atomic<int> late_works;  // how many works have not been done
// Returns whether work of the stream is done later in the present call.
bool defers(cudaStream_t stream);
// Keeps work for later. `host` is pinned memory that it reads or writes, or null.
cudaError_t defer(cudaStream_t stream, Work work, const void* host = nullptr, std::size_t bytes = 0, bool writes = false);
bool defers_copies_to_host();
// Does all work that new work of the stream comes after. The host then has waited for it.
void do_late_work(cudaStream_t stream);
void do_late_work_until(cudaStream_t stream, std::uint64_t position);
void do_all_late_work();
inline void finish(cudaStream_t stream) {
  if (late_works) do_late_work(stream);
}
std::uint64_t position_in(cudaStream_t stream);  // how many works of the stream were kept so far
void next_lateness();                            // after all work is done: another call begins

// For the sanitizer: which launches come before which, by streams, events and waits of the host. A ticket is a launch; 0
// is one that is ordered with all.
std::uint64_t take_ticket(cudaStream_t stream);
extern thread_local std::uint64_t ticket_of_graph;  // that of the launch of the graph whose work this thread does, or 0
bool comes_before(std::uint64_t first, std::uint64_t second);
void host_waited(cudaStream_t stream);
void host_waited_for_all();
void event_recorded(cudaEvent_t event, cudaStream_t stream);
void stream_waits(cudaStream_t stream, cudaEvent_t event);
void host_waited(cudaEvent_t event);
void choose_lateness(std::uint64_t order);

}  // namespace emulator

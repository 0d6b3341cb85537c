// The queues of work that is done late, and the order of launches for the sanitizer.
#include "emulator/host.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "emulator/sanitize.h"
#include "emulator/streams.h"

namespace emulator {

std::atomic<int> late_works{0};

namespace {

struct Late {
  Work work;
  const char* host;
  std::size_t bytes;
  bool writes;
};
struct Queue {
  std::deque<Late> works;
  std::uint64_t added = 0;
};

// How late work is done in the present call. Streams that nothing orders may run in any order.
enum class Lateness { kReversed, kLate, kNone };

std::recursive_mutex mutex;  // late work may free memory, which may do further work
std::map<cudaStream_t, Queue>& queues() {
  static auto* all = new std::map<cudaStream_t, Queue>;
  return *all;
}
Lateness lateness = Lateness::kReversed;

cudaStream_t plain(cudaStream_t stream) { return stream == cudaStreamLegacy ? nullptr : stream; }
bool waits_for_legacy(cudaStream_t stream) { return stream && (stream == cudaStreamPerThread || is_blocking(stream)); }

void do_first(Queue& queue) {
  const Late next = std::move(queue.works.front());
  queue.works.pop_front();
  --late_works;
  next.work();
}

void do_queue(cudaStream_t stream) {
  Queue& queue = queues()[stream];
  if (waits_for_legacy(stream))
    while (!queues()[nullptr].works.empty()) do_first(queues()[nullptr]);
  while (!queue.works.empty()) do_first(queue);
}

std::vector<cudaStream_t> in_order() {
  std::vector<cudaStream_t> streams;
  for (const auto& [stream, queue] : queues()) streams.push_back(stream);
  if (lateness == Lateness::kReversed) std::reverse(streams.begin(), streams.end());
  return streams;
}

}  // namespace

bool defers(cudaStream_t stream) { return lateness != Lateness::kNone && plain(stream) && (stream == cudaStreamPerThread || is_created(stream)); }
bool defers_copies_to_host() { return lateness != Lateness::kNone; }

cudaError_t defer(cudaStream_t stream, Work work, const void* host, std::size_t bytes, bool writes) {
  if (synchronize()) return synchronize();
  std::lock_guard lock(mutex);
  Queue& queue = queues()[plain(stream)];
  queue.works.push_back({std::move(work), static_cast<const char*>(host), bytes, writes});
  ++queue.added;
  ++late_works;
  return cudaSuccess;
}

void do_late_work(cudaStream_t stream) {
  std::lock_guard lock(mutex);
  if (!plain(stream))
    for (cudaStream_t other : in_order())
      if (waits_for_legacy(other)) do_queue(other);
  do_queue(plain(stream));
}

void do_late_work_until(cudaStream_t stream, std::uint64_t position) {
  std::lock_guard lock(mutex);
  Queue& queue = queues()[plain(stream)];
  while (!queue.works.empty() && queue.added - queue.works.size() < position) do_first(queue);
}

void do_all_late_work() {
  if (!late_works) return;
  std::lock_guard lock(mutex);
  for (cudaStream_t stream : in_order()) do_queue(stream);
}

std::uint64_t position_in(cudaStream_t stream) {
  std::lock_guard lock(mutex);
  return queues()[plain(stream)].added;
}

void next_lateness() {
  std::lock_guard lock(mutex);
  if (!sanitize::on) lateness = static_cast<Lateness>((static_cast<int>(lateness) + 1) % 3);
}

void choose_lateness(std::uint64_t order) { lateness = order == 0 ? Lateness::kLate : order == 1 ? Lateness::kReversed : static_cast<Lateness>(order % 3); }

// ------------------------------------------------------------------------------------ for the sanitizer

namespace {

// For each stream, how many of its launches come before a point.
using Clock = std::map<cudaStream_t, std::uint64_t>;
struct Ticket {
  cudaStream_t stream;
  std::uint64_t number;
  Clock before;
};
struct Order {
  std::map<cudaStream_t, Clock> streams;
  std::map<cudaEvent_t, Clock> events;
  Clock host;
  std::vector<Ticket> tickets{{}};
};
Order& order() {
  static auto* only = new Order;
  return *only;
}

void merge(Clock& into, const Clock& other) {
  for (const auto& [stream, number] : other) into[stream] = std::max(into[stream], number);
}

// The launches that new work of a stream comes after.
Clock before_work_of(cudaStream_t stream) {
  Clock clock = order().streams[stream];
  merge(clock, order().host);
  if (waits_for_legacy(stream)) merge(clock, order().streams[nullptr]);
  if (!stream)
    for (const auto& [other, known] : order().streams)
      if (waits_for_legacy(other)) merge(clock, known);
  return clock;
}

}  // namespace

std::uint64_t take_ticket(cudaStream_t stream) {
  if (!sanitize::on) return 0;
  std::lock_guard lock(mutex);
  stream = plain(stream);
  Clock clock = before_work_of(stream);
  ++clock[stream];
  order().streams[stream] = clock;
  order().tickets.push_back({stream, clock[stream], clock});
  return order().tickets.size() - 1;
}

thread_local std::uint64_t ticket_of_graph = 0;

bool comes_before(std::uint64_t first, std::uint64_t second) {
  if (!first || !second) return true;
  std::lock_guard lock(mutex);
  const Ticket& earlier = order().tickets[first];
  const Clock& known = order().tickets[second].before;
  const auto found = known.find(earlier.stream);
  return found != known.end() && found->second >= earlier.number;
}

void host_waited(cudaStream_t stream) {
  if (!sanitize::on) return;
  std::lock_guard lock(mutex);
  merge(order().host, before_work_of(plain(stream)));
}

void host_waited_for_all() {
  if (!sanitize::on) return;
  std::lock_guard lock(mutex);
  for (const auto& [stream, clock] : order().streams) merge(order().host, clock);
}

void event_recorded(cudaEvent_t event, cudaStream_t stream) {
  if (!sanitize::on) return;
  std::lock_guard lock(mutex);
  order().events[event] = before_work_of(plain(stream));
}

void stream_waits(cudaStream_t stream, cudaEvent_t event) {
  if (!sanitize::on) return;
  std::lock_guard lock(mutex);
  merge(order().streams[plain(stream)], order().events[event]);
}

void host_waited(cudaEvent_t event) {
  if (!sanitize::on) return;
  std::lock_guard lock(mutex);
  merge(order().host, order().events[event]);
}

// Finds late work that uses pinned memory in a way that conflicts with an access of the host. Called for each access of
// host code, so it first tests whether there is late work.
bool sanitize::awaits_host_memory(const void* address, std::size_t bytes, bool write) {
  if (!late_works) return false;
  std::lock_guard lock(mutex);
  const auto* low = static_cast<const char*>(address);
  for (const auto& [stream, queue] : queues())
    for (const Late& late : queue.works)
      if (late.host && low < late.host + late.bytes && late.host < low + bytes && (write || late.writes)) return true;
  return false;
}

}  // namespace emulator

// The sanitizer's interface to the worker process. The worker names the buffers, and reads the findings as text with
// one JSON object a line.
#include <c10/core/CPUAllocator.h>

#include <sstream>

#include "emulator/host.h"
#include "json_text.h"
#include "sanitize_watch.h"

namespace {

namespace sanitize = emulator::sanitize;
using emulator::quoted;

constexpr const char* kKinds[] = {
    "out-of-bounds read", "out-of-bounds write", "use after free",      "uninitialised read", "race",         "divergent barrier",
    "skipped barrier",    "divergent warp",      "write to an input",   "failed launch",      "never written", "order dependence",
    "misaligned access",  "trap",                "absent lane",       "missing proxy fence",
    "write before a wait", "registers before a wait", "failed instruction", "hang",              "access before a wait",
};

struct RoomyAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    if (!bytes) return {nullptr, nullptr, &sanitize::free_for_host, c10::Device(c10::kCPU)};
    void* address = sanitize::take_for_host(bytes);
    TORCH_CHECK(address, "out of memory: tried to allocate ", bytes, " bytes.");
    return {address, address, &sanitize::free_for_host, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &sanitize::free_for_host; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

void put(std::ostream& out, const dim3& v) { out << '[' << v.x << ',' << v.y << ',' << v.z << ']'; }

void put(std::ostream& out, const char* name, const sanitize::Where& where, const sanitize::Record& launch) {
  if (!where.known) return;
  const dim3 &g = launch.grid, &b = launch.block;
  out << ",\"" << name << "\":{\"site\":" << where.site << ",\"write\":" << (where.write ? "true" : "false") << ",\"block\":";
  put(out, dim3(where.block % g.x, where.block / g.x % g.y, where.block / g.x / g.y));
  if (const auto* place = sanitize::watch().place_of(where.site)) out << ",\"file\":" << quoted(place->file) << ",\"line\":" << place->line;
  out << ",\"thread\":";
  put(out, dim3(where.thread % b.x, where.thread / b.x % b.y, where.thread / b.x / b.y));
  out << '}';
}

void put(std::ostream& out, const sanitize::Finding& found) {
  static const sanitize::Record none{};
  const sanitize::Record& launch = found.launch < 0 ? none : sanitize::watch().launches[static_cast<std::size_t>(found.launch)];
  out << "{\"kind\":" << quoted(kKinds[static_cast<int>(found.kind)]) << ",\"kernel\":" << quoted(launch.kernel)
      << ",\"library\":" << quoted(launch.library) << ",\"launch_file\":" << quoted(launch.file) << ",\"launch_line\":" << launch.line
      << ",\"grid\":";
  put(out, launch.grid);
  out << ",\"threads\":";
  put(out, launch.block);
  put(out, "here", found.here, launch);
  put(out, "there", found.there, launch);
  if (found.region) {
    constexpr const char* places[] = {"device", "shared", "dynamic shared"};
    const std::string& name = found.array.empty() ? found.region->name : found.array;
    out << ",\"buffer\":{\"place\":\"" << places[static_cast<int>(found.region->place)] << "\",\"name\":" << quoted(name)
        << ",\"bytes\":" << found.buffer_bytes << ",\"offset\":" << found.offset << '}';
  }
  out << ",\"bytes\":" << found.size << ",\"detail\":" << quoted(found.detail) << ",\"count\":" << found.count << "}\n";
}

}  // namespace

extern "C" {

void emulator_sanitize_start() {
  static RoomyAllocator roomy;
  c10::SetCPUAllocator(&roomy, 255);
  sanitize::on = true;
}

void emulator_sanitize_begin(std::uint64_t order, int checks) {
  sanitize::Watch& watch = sanitize::watch();
  watch.begin_call();
  watch.order = order;
  emulator::choose_lateness(order);
  watch.checks = checks;
}
void emulator_sanitize_end() { sanitize::watch().end_call(); }

void emulator_sanitize_array(const char* library, std::uint64_t offset, std::uint64_t bytes, const char* name) {
  sanitize::watch().arrays[library].push_back({offset, bytes, name});
}

void emulator_sanitize_buffer(const void* address, const char* name, int read_only) {
  if (sanitize::Region* region = sanitize::memory().at(static_cast<const char*>(address))) {
    region->name = name;
    region->read_only = read_only;
  }
}

void emulator_sanitize_blame(const void* address) { sanitize::watch().blame(static_cast<const char*>(address)); }
void emulator_sanitize_unwritten(const void* address, std::uint64_t elements, std::uint64_t bytes) {
  sanitize::watch().unwritten(static_cast<const char*>(address), elements, bytes);
}

const char* emulator_sanitize_findings() {
  static std::string text;
  std::ostringstream out;
  for (const auto& found : sanitize::watch().findings) put(out, found);
  text = out.str();
  return text.c_str();
}
}

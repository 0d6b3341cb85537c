"""Advice on a finding of the sanitizer: how its mistake is usually fixed."""

from __future__ import annotations

from cuda_on_cpu.emulator.findings import Finding, Kind

# For an access outside of memory that is just past the end, _JUST_PAST is the fix.
_FIXES = {
    Kind.OUT_OF_BOUNDS_READ: "guard the access with the sizes at this shape",
    Kind.OUT_OF_BOUNDS_WRITE: "guard the access with the sizes at this shape",
    Kind.USE_AFTER_FREE: "guard the access with the sizes at this shape",
    Kind.MISALIGNED: "a vector type such as float4 needs an address that is a multiple of its size. Check the start "
    "and the row length",
    Kind.UNINITIALISED_READ: "write the memory in every branch, with 0 where a tile reaches past the input",
    Kind.RACE: "order the two accesses, or use an atomic operation",
    Kind.DIVERGENT_BARRIER: "let every thread of the block reach the barrier: guard the work, and do not return",
    Kind.DIVERGENT_WARP: "let every lane of the mask reach the call, or name in the mask the lanes that do",
    Kind.INPUT_WRITTEN: "write to a tensor of the kernel's own, such as torch::empty_like of the input",
    Kind.FAILED_LAUNCH: "check the grid, the block and the shared memory against the limits, and the returned error",
    Kind.TRAP: "find out why the condition of the assertion fails, or the trap is reached, in this thread",
    Kind.ABSENT_LANE: "let a lane read only from lanes in the mask: name every lane, or shorten the exchange",
    Kind.NO_PROXY_FENCE: "let each thread that wrote call fence.proxy.async.shared::cta before the barrier",
    Kind.STILL_READ: "wait first, by wgmma.wait_group or cp.async.bulk.wait_group.read, and then give the memory up",
    Kind.NO_WAIT: "call wgmma.commit_group and wgmma.wait_group before (ptxas adds the wait, at once after the wgmma)",
    Kind.HANG: "compare the arrivals and bytes that the barrier expects, and the parity, with what the threads do",
    Kind.TOO_EARLY: "wait for the stream first: cudaStreamSynchronize, or an event that the other stream waits for",
}
_JUST_PAST = (
    "it is just past the end: look for an index that can equal the size, such as i <= n for i < n in a guard or a "
    "loop, or for sizes in another order than the kernel's parameters"
)
_SHARED_RACE = (
    "put __syncthreads() between the two accesses. If several threads add to one element, use an atomic operation; if "
    "no thread should touch the other's element, correct the index"
)
# Findings of these kinds are effects, and do not say what to fix.
_EFFECTS = (Kind.NEVER_WRITTEN, Kind.ORDER_DEPENDENCE)


def advice(finding: Finding) -> str:
    """Returns how the mistake of a finding is fixed; empty for a finding that is the effect of another mistake."""
    if finding.kind in _EFFECTS:
        return ""
    fix, buffer = _FIXES.get(finding.kind, ""), finding.buffer
    if buffer and "out-of-bounds" in finding.kind and buffer.offset == buffer.bytes:
        fix = _JUST_PAST
    if buffer and finding.kind is Kind.RACE and "shared" in buffer.place:
        fix = _SHARED_RACE
    where = f"fix the {finding.kind} at {finding.here.file}:{finding.here.line} first"
    return f"{where}: {fix}" if fix else where

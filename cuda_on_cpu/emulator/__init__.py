"""Compiles CUDA sources for the host's processor and runs them there, counted or checked if that is asked for.

1. rewrite.py and launches.py rewrite CUDA syntax that g++ cannot parse as C++. They edit the tokens of
   compile/cuda_source.py. warp_steps.py keeps lanes together that share volatile memory without a barrier.
2. ptx.py and ptx_instructions.py translate inline PTX. unsupported.py lets constructs that only a GPU can run (some
   PTX, some headers) report themselves where they run, and finds them with their line in the compiler's log.
3. units.py makes translation units of the rewritten source. g++ compiles them with the flags of flags.py and the
   headers in include/: include/cuda has headers with CUDA's names, include/emulator implements them, and include/light
   has a small torch/extension.h. For a profile, unrolled_loops.py and counted_updates.py add to the source, and
   narrow_accesses.py edits the assembly code.
4. nvcc_rules.py refuses what nvcc refuses. extension.py links the candidate's library. shared_memory_limit.py and
   constant_memory_limit.py check the compiled objects. keys.py makes the
   library's cache key.
5. shared_parts.py builds the parts that all candidates share: the runtime library and the precompiled header.
6. runtime/ runs a launch: the cores divide the blocks, and the threads of a block are switched contexts on one core, so
   that barriers, shared memory, shuffles and atomics work as on a GPU. counting/ reports accesses for a profile,
   and runtime/profile_warps.cpp brings those of a warp together. source_lines.py finds their lines.
7. torch_cuda.py gives the emulated device to the torch of a worker process, and torch_graphs.py its CUDA graphs.
   sanitize.py reads the sanitizer's findings, and findings.py makes a sentence of each.
"""

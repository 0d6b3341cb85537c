"""Tools for kernel authors that give no verdict: the sanitizer and the profiler."""

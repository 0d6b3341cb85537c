"""CUDA on the CPU: the same `.cu` string, compiled for this processor and run. Judging happens elsewhere."""

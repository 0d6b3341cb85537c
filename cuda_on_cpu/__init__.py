"""CUDA on the CPU: builds CUDA sources for the host's processor, runs and checks them there."""

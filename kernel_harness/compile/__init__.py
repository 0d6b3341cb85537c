"""Builds a candidate's library for a real GPU with nvcc, and reads candidates that are `.cu` files."""

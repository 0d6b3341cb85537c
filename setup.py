"""Packages of the wheel; everything else about the project is in pyproject.toml.

The shipped problems and kernels are top-level folders in a checkout and lie inside the package in a wheel.
"""

from setuptools import find_packages, setup

SHIPPED = {"kernel_harness.shipped.problems": "problems", "kernel_harness.shipped.kernels": "kernels"}

setup(packages=[*find_packages(include=["kernel_harness*", "cuda_on_cpu*"]), *SHIPPED], package_dir=SHIPPED)

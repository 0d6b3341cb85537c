"""PASSED: executes the file of another candidate, which it can read.

Class: library use
Layer: none
"""

from pathlib import Path

import kernel_harness

folder = Path(kernel_harness.__file__).parent.parent / "tests" / "adversarial" / "cheats"
exec((folder / "control_right.py").read_text())

"""x."""

import argparse
from pathlib import Path


def run(options: argparse.Namespace, root: Path) -> int:
    """x."""
    return 0

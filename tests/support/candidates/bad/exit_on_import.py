"""LOAD_ERROR: exit(0) while it is imported.

Says: exit_on_import.py:8: SystemExit: 0
"""

import sys

sys.exit(0)

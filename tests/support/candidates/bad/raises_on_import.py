"""LOAD_ERROR: the file raises while it is imported.

Says: raises_on_import.py:6: ZeroDivisionError: division by zero
"""

SCALE = 1 / 0

"""TIMEOUT: an endless loop while it is imported.

Says: No answer within
"""

while True:
    pass

"""CRASHED: reports a failed start of its process when its file is executed.

Says: malformed message
"""

import gc

worker = next(each for each in gc.get_objects() if type(each).__module__ == "kernel_harness.worker.worker")
worker._stage = worker._stage.START
raise RuntimeError("There is no memory left.")

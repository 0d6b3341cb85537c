"""CRASHED: says that its process could not start, once it runs.

Says: something that is no answer
"""

import gc

worker = next(each for each in gc.get_objects() if type(each).__module__ == "kernel_harness.worker")
worker._stage = "start"
raise RuntimeError("There is no memory left.")

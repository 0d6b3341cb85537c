"""Communication between judge, fork server and workers: typed messages, their channel, and tensors in shared memory."""

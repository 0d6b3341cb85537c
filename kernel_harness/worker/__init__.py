"""The programs of all processes except the judge: the fork server, each worker, and the reaper of each worker."""

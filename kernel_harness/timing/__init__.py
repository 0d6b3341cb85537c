"""Times calls: rounds, clocks, statistics, and interference between candidates."""

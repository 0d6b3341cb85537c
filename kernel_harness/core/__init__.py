"""Shared by all packages: statuses, number formats, errors, paths, files, process trees, terminals."""

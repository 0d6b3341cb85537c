"""Shared by all packages: errors of the user, progress texts, waiting."""

"""Explainers: they get a candidate that has its verdict, and return remarks on it. They change no verdict."""

"""Suites: many candidates of many problems, judged by several device workers, and figures over the verdicts."""

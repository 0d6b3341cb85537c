"""Suites: many candidates of many problems, judged by several evaluator processes, and figures over the verdicts."""

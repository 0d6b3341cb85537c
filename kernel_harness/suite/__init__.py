"""Suites: many candidates of many problems, judged by one evaluator process for each device, and figures over them."""

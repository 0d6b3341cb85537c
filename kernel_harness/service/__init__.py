"""The service: verdicts over HTTP for many clients, with jobs that outlive a killed server."""

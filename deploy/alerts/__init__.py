"""Alert rules as code; `python -m deploy.alerts.main` writes what Prometheus loads."""

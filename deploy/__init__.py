"""What runs around the service: dashboards and alerts as code, Prometheus, container images."""

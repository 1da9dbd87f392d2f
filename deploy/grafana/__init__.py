"""The Grafana dashboard as code; `python -m deploy.grafana.main` writes its JSON."""

from pathlib import Path

GENERATED = Path(__file__).parent / "generated" / "patamar.json"

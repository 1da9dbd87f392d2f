"""Writes the alert rules as the YAML that Prometheus loads."""

from __future__ import annotations

from pathlib import Path

import yaml

from deploy.alerts.rules import Alert, all_alerts

GENERATED = Path(__file__).parents[1] / "prometheus" / "alerts.yml"
RUNBOOK = "docs/operations.md"
_HEADER = (
    "# Generated from deploy/alerts/rules.py by `python -m deploy.alerts.main`. Do not edit.\n"
)


def render() -> str:
    """The rule file, stable from run to run."""
    groups = {"groups": [{"name": "patamar", "rules": [_rule(alert) for alert in all_alerts()]}]}
    return _HEADER + yaml.safe_dump(groups, sort_keys=False, width=10_000)


def _rule(alert: Alert) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.hold,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "runbook": f"{RUNBOOK}#{alert.name.lower()}",
        },
    }


if __name__ == "__main__":
    GENERATED.write_text(render(), encoding="utf-8")

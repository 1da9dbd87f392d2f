"""A bundle's report as text tables for a terminal."""

from __future__ import annotations

from export.evaluate import BundleReport, PolicyScore


def report_tables(report: BundleReport) -> str:
    """Accuracy by exit, then by operating point: layers run, speed-up, where texts leave."""
    return "\n".join(
        [
            "",
            f"{report.samples:,} test texts, {report.layers} layers, measured on the graphs of "
            f"bundle {report.bundle}",
            "",
            *_exit_lines(report),
            "",
            *_policy_lines(report),
        ]
    )


def _exit_lines(report: BundleReport) -> list[str]:
    layers = "".join(f"{score.exit_layer:>8}" for score in report.exits)
    accuracies = "".join(f"{score.accuracy:>8.1%}" for score in report.exits)
    return [f"{'exit layer':<24}{layers}", f"{'accuracy if all leave':<24}{accuracies}"]


def _policy_lines(report: BundleReport) -> list[str]:
    layers = "".join(f"{f'exit {score.exit_layer}':>8}" for score in report.exits)
    header = (
        f"{'operating point':<24}{'threshold':>10}{'accuracy':>10}{'layers':>8}{'speed-up':>10}"
        f"{layers}"
    )
    return [header, *(_policy_line(score) for score in report.policies)]


def _policy_line(score: PolicyScore) -> str:
    shares = "".join(f"{share:>8.1%}" for share in score.share_by_exit)
    thresholds = sorted(set(score.thresholds))
    shown = f"{thresholds[0]:.3g}" if len(thresholds) == 1 else "by exit"
    return (
        f"{score.name:<24}{shown:>10}{score.accuracy:>10.1%}{score.average_layers:>8.2f}"
        f"{score.speedup:>9.2f}x{shares}"
    )

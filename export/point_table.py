"""A bundle's operating points as a table for a terminal, with what each of them promises."""

from __future__ import annotations

from multi_exit.bundle import BundleManifest, OperatingPoint
from multi_exit.certificate import Certificate


def point_table(manifest: BundleManifest) -> str:
    """One line a point: thresholds, layers, speed-up, agreement, accuracy; then its promises."""
    width = max(len(point.name) for point in manifest.operating_points) + 2
    header = (
        f"{'operating point':<{width}}{'threshold':>10}{'layers':>8}{'speed-up':>10}"
        f"{'agreement':>11}{'accuracy':>10}"
    )
    lines = [header]
    for point in manifest.operating_points:
        chosen = "  (default)" if point.name == manifest.default_point else ""
        lines.append(_measured(point, width) + chosen)
        lines += [f"    {certificate.statement}" for certificate in strictest(point)]
    return "\n".join(lines)


def strictest(point: OperatingPoint) -> list[Certificate]:
    """The smallest epsilon of each kind and class: it covers the larger ones."""
    found: dict[tuple[str, str | None], Certificate] = {}
    for certificate in sorted(point.certificates, key=lambda given: given.epsilon):
        found.setdefault((certificate.kind, certificate.label), certificate)
    return list(found.values())


def _measured(point: OperatingPoint, width: int) -> str:
    same = len(set(point.thresholds)) == 1
    threshold = f"{point.thresholds[0]:.3g}" if same else "by exit"
    accuracy = "-" if point.accuracy is None else f"{point.accuracy:.1%}"
    return (
        f"{point.name:<{width}}{threshold:>10}{point.average_layers:>8.2f}{point.speedup:>9.2f}x"
        f"{point.agreement:>11.2%}{accuracy:>10}"
    )

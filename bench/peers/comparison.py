"""Serves the same texts from Patamar and from other servers, in interleaved rounds.

Every server runs on the same machine with the same number of threads and stays up all the time;
one at a time is asked. The peers' model has the size of ours and random weights: it is timed, its
answers are not looked at. What all are compared with is the plainest: a transformers pipeline.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from bench.interleave import Ratio, ratio
from bench.peers.contender import Contender
from bench.peers.elsewhere import check_answers, contender_elsewhere
from bench.peers.environment import programs_of
from bench.peers.kinds import PIPELINE, peer_kind
from bench.peers.model import write_peer_model
from bench.serving.load import LoadSample, closed_loop
from bench.serving.questions import PATH, Answering
from bench.serving.server_process import free_port, patamar_server, running
from bench.serving.static_bundle import write_static_bundle
from multi_exit.bundle import Bundle, BundleManifest, OperatingPoint
from multi_exit.errors import ConfigurationError
from multi_exit.policy import Policy

PEER = PIPELINE.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One contender against the pipeline at one number of connections; ratios of the same round.

    throughput: contender / pipeline, more is better. p50, p99: likewise, less is better.
    """

    name: str
    connections: int
    throughput: Ratio
    p50: Ratio
    p99: Ratio


def one_point_operating_point(manifest: BundleManifest) -> OperatingPoint:
    """The fastest point within one point of the accuracy of full depth, on the calibration split.

    Raises ConfigurationError for a bundle calibrated without labels.
    """
    points = [
        point
        for point in manifest.operating_points
        if point.accuracy is not None
        and point.full_depth_accuracy is not None
        and point.accuracy >= point.full_depth_accuracy - 0.01
    ]
    if not points:
        raise ConfigurationError(
            f"bundle {manifest.name!r} has no operating point within one point of full depth"
        )
    return max(points, key=lambda point: point.speedup)


@contextmanager
def contenders_running(
    bundle: Bundle,
    checkpoint: Path,
    point: OperatingPoint,
    *,
    peers: Sequence[str],
    elsewhere: Sequence[str],
    environments: Path,
    threads: int,
) -> Iterator[list[Contender]]:
    """The peers, the pipeline always first; ours without exits, at full depth and at `point`.

    elsewhere: peers that run already, as "name=URL". environments: folder of the other peers' own
    Python environments. Raises ConfigurationError for an
    unknown peer, and for one that cannot be installed or does not get ready.
    """
    kinds = [PIPELINE, *(peer_kind(name) for name in peers if name != PIPELINE.name)]
    with ExitStack() as servers:
        folder = Path(servers.enter_context(tempfile.TemporaryDirectory()))
        write_peer_model(checkpoint, folder / "model")
        contenders = [contender_elsewhere(name, bundle) for name in elsewhere]
        for kind in kinds:
            port = free_port()
            command = kind.command(programs_of(kind, environments), folder / "model", port, threads)
            limit = {"OMP_NUM_THREADS": str(threads)}
            server = servers.enter_context(running(command, port, limit, kind.ready_path))
            contenders.append(
                Contender(name=kind.title, url=f"{server.url}{kind.path}", body=kind.body)
            )
        static = write_static_bundle(bundle, folder / "static")
        plain = servers.enter_context(patamar_server(static.path, threads=threads))
        ours = servers.enter_context(patamar_server(bundle.path, threads=threads))
        for name, url, threshold in (
            ("patamar, static model", plain.url, None),
            ("patamar, full depth", ours.url, 0.0),
            (f"patamar, {point.name}", ours.url, point.thresholds[0]),
        ):
            policy = Policy.constant(threshold or 0.0, len(bundle.manifest.exits))
            answering = Answering(name=name, policy=policy, threshold=threshold)
            contenders.append(Contender(name=name, url=f"{url}{PATH}", body=answering.body))
        yield contenders


def measure_peers(
    contenders: Sequence[Contender],
    texts: Sequence[str],
    *,
    connections: Sequence[int],
    rounds: int,
    seconds: int,
    seed: int = 0,
) -> list[LoadSample]:
    """Raw samples: every contender once a round at every number of connections, order drawn."""
    for contender in contenders:
        check_answers(contender, texts)
    rng = np.random.default_rng(seed)
    samples = []
    total = rounds * len(connections) * len(contenders)
    with tqdm(total=total, desc="peers", unit="run", disable=None) as progress:
        for round_ in range(rounds + 1):
            for count in connections:
                for index in rng.permutation(len(contenders)):
                    contender = contenders[index]
                    bodies = [contender.body(text) for text in texts]
                    sample = closed_loop(
                        contender.name,
                        contender.url,
                        bodies,
                        connections=count,
                        # The first round warms up and is dropped.
                        seconds=seconds if round_ else 2,
                    )
                    if round_:
                        samples.append(sample)
                        progress.update()
    return samples


def compare(samples: Sequence[LoadSample], seed: int = 0) -> list[Comparison]:
    """Each contender against the pipeline, from samples in the order in which rounds were run."""
    rng = np.random.default_rng(seed)
    result = []
    for connections in sorted({sample.connections for sample in samples}):
        at = [sample for sample in samples if sample.connections == connections]
        for name in dict.fromkeys(s.server for s in at if s.server != PEER):
            ours = [sample for sample in at if sample.server == name]
            theirs = [sample for sample in at if sample.server == PEER]
            ratios = {
                field: ratio(
                    np.array([getattr(sample, field) for sample in ours]),
                    np.array([getattr(sample, field) for sample in theirs]),
                    rng,
                )
                for field in ("requests_per_second", "p50_ms", "p99_ms")
            }
            result.append(
                Comparison(
                    name=name,
                    connections=connections,
                    throughput=ratios["requests_per_second"],
                    p50=ratios["p50_ms"],
                    p99=ratios["p99_ms"],
                )
            )
    return result


def comparison_table(comparisons: Sequence[Comparison]) -> str:
    """The comparisons as a Markdown table."""
    lines = [
        "| against the pipeline | connections | throughput | p50 | p99 |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {c.name} | {c.connections} | {_shown(c.throughput)} | {_shown(c.p50)} "
        f"| {_shown(c.p99)} |"
        for c in comparisons
    ]
    return "\n".join(lines)


def comparison_json(
    samples: Sequence[LoadSample], comparisons: Sequence[Comparison]
) -> dict[str, object]:
    """Raw samples and ratios as plain data."""
    return {
        "samples": [asdict(sample) for sample in samples],
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }


def _shown(value: Ratio) -> str:
    return f"{value.median:.2f} ({value.low:.2f} to {value.high:.2f})"

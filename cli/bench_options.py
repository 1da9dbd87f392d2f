"""The options of each kind of `patamar bench`, with defaults for a quiet machine."""

from __future__ import annotations

import argparse
from pathlib import Path


def common(parser: argparse.ArgumentParser, *, texts: bool, threshold: bool) -> None:
    """Those of every kind; texts, threshold: for kinds that ask real texts, or exit early."""
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", type=int, default=0, help="0 for all there are")
    parser.add_argument("--seed", type=int, default=0, help="of arrivals, order and texts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if texts:
        parser.add_argument("--texts", type=Path, required=True, help="file with a column `text`")
    if threshold:
        parser.add_argument(
            "--threshold", type=float, help="early exit; the bundle's default point without"
        )


def staging(parser: argparse.ArgumentParser) -> None:
    _add_rounds(parser, 30)


def efficiency(parser: argparse.ArgumentParser) -> None:
    _add_rounds(parser, 11, seconds=5)
    parser.add_argument("--sample", type=int, default=256, help="texts run in the engine")
    parser.add_argument("--connections", type=int, default=32, help="that saturate the server")


def load(parser: argparse.ArgumentParser) -> None:
    _add_rounds(parser, 3, seconds=10)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--limit-ms", type=float, default=50.0, help="for the p99")
    parser.add_argument("--most-trials", type=int, default=20, help="rates tried, at most")
    parser.add_argument("--sample", type=int, default=200, help="short texts, for the overhead")


def mixed(parser: argparse.ArgumentParser) -> None:
    _add_rounds(parser, 7, seconds=20)
    parser.add_argument("--load", type=float, default=0.5, help="share of the capacity to send")
    parser.add_argument("--rate", type=float, help="texts a second to send, instead of --load")


def overload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=120, help="of overload")
    parser.add_argument("--times", type=float, default=3.0, help="capacity, to be sent")
    parser.add_argument("--peak-seconds", type=float, default=15, help="to measure the capacity")
    parser.add_argument(
        "--waiting-seconds",
        type=float,
        default=2.0,
        help="sets max_waiting_tokens to so much work; 0 leaves the service's own limit",
    )
    parser.add_argument("--early", action="store_true", help="early exit instead of full depth")


def sliding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60, help="of load")
    parser.add_argument(
        "--times", type=float, default=1.5, help="capacity at full depth, to be sent"
    )
    parser.add_argument("--peak-seconds", type=float, default=10, help="to measure the capacity")
    parser.add_argument(
        "--slide-to", help="operating point; the fastest certified for consistency without"
    )


def invariance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--answers", type=int, default=10_000, help="to compare")


def peers(parser: argparse.ArgumentParser) -> None:
    _add_rounds(parser, 7, seconds=5)
    parser.add_argument("--checkpoint", type=Path, required=True, help="the bundle's checkpoint")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16])
    parser.add_argument(
        "--peers",
        nargs="+",
        default=["pipeline"],
        help="of pipeline (always), litserve, infinity, bentoml, ray; the others are installed, "
        "with torch, in environments of their own",
    )
    parser.add_argument(
        "--running",
        nargs="+",
        default=[],
        metavar="NAME=URL",
        help="peers that you started: tei=http://… or triton=http://…",
    )
    parser.add_argument(
        "--environments", type=Path, default=Path("build/peers"), help="folder of these"
    )


def _add_rounds(parser: argparse.ArgumentParser, rounds: int, seconds: int | None = None) -> None:
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds, at least 2")
    if seconds is not None:
        parser.add_argument("--seconds", type=int, default=seconds, help="of one run of load")

"""`patamar classify BUNDLE FILE`: classifies the lines of a file, without a server."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from multi_exit.errors import DataError, PolicyError, TextError

if TYPE_CHECKING:
    from multi_exit.bundle import BundleManifest
    from multi_exit.policy import Policy
    from multi_exit.text_encoder import TextInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="sealed bundle")
    parser.add_argument(
        "file",
        help="one text a line, or with --json one object a line with text and perhaps text_pair; "
        "- reads standard input",
    )
    parser.add_argument("--json", action="store_true", help="lines are JSON objects")
    wish = parser.add_mutually_exclusive_group()
    wish.add_argument("--threshold", type=float, help="entropy threshold in [0, 1]")
    wish.add_argument(
        "--max-accuracy-drop",
        type=float,
        metavar="SHARE",
        help="fastest operating point certified to lose less accuracy than this",
    )
    wish.add_argument(
        "--max-disagreement",
        type=float,
        metavar="SHARE",
        help="fastest operating point certified to give at most this share another label",
    )
    wish.add_argument(
        "--speed", type=float, metavar="TIMES", help="safest operating point that is so fast"
    )
    parser.add_argument("--max-layer", type=int, help="never run deeper than this layer")
    parser.add_argument("--threads", type=int, default=0, help="0 for all there are")
    parser.add_argument("--provider", choices=("auto", "cpu", "cuda"), default="auto")


def run(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from multi_exit.bundle import load_bundle
    from multi_exit.offline import classify_texts
    from multi_exit.runner import StageRunner

    bundle = load_bundle(options.bundle)
    manifest = bundle.manifest
    policy = _policy(options, manifest)
    encoder = bundle.text_encoder()
    encoded = []
    for row, text in enumerate(_texts(options.file, options.json), start=1):
        try:
            encoded.append(encoder.encode(text))
        except TextError as error:
            raise DataError(f"{options.file}, line {row}: {error}") from error
    runner = StageRunner(bundle, provider=options.provider, threads=options.threads)
    with tqdm(total=len(encoded), desc="classify", unit="text", disable=None) as progress:
        answers = classify_texts(runner, manifest, encoded, policy, advanced=progress.update)
    for answer in answers:
        print(
            json.dumps(
                {
                    "label": answer.label,
                    "score": round(answer.score, 6),
                    "exit_layer": answer.exit_layer,
                    "entropy": round(answer.entropy, 6),
                    "truncated": answer.truncated,
                },
                ensure_ascii=False,
            )
        )
    return 0


def _policy(options: argparse.Namespace, manifest: BundleManifest) -> Policy:
    from multi_exit.contracts import Knobs, point_for
    from multi_exit.policy import Policy, exit_within

    exits = manifest.exits
    knobs = Knobs(
        threshold=options.threshold,
        max_accuracy_drop=options.max_accuracy_drop,
        max_disagreement=options.max_disagreement,
        speed=options.speed,
        max_layer=options.max_layer,
    )
    if knobs.threshold is not None:
        policy = Policy.constant(knobs.threshold, len(exits))
    elif knobs.contract is not None:
        policy = point_for(manifest.operating_points, *knobs.contract).policy
    elif manifest.default_point is not None:
        policy = manifest.point(manifest.default_point).policy
    else:
        policy = Policy.constant(0.0, len(exits))
    if knobs.max_layer is None:
        return policy
    last_exit = exit_within(exits, knobs.max_layer)
    if last_exit is None:
        raise PolicyError(f"--max-layer must be at least {exits[0]}, the first exit of this bundle")
    return policy.capped(last_exit)


def _texts(file: str, as_json: bool) -> Iterator[TextInput]:
    from multi_exit.text_encoder import TextInput

    for row, line in enumerate(_lines(file), start=1):
        if not as_json:
            yield TextInput(line)
            continue
        try:
            found = json.loads(line)
            yield TextInput(str(found["text"]), found.get("text_pair"))
        except (json.JSONDecodeError, TypeError, KeyError, AttributeError):
            raise DataError(
                f'{file}, line {row}: expected an object such as {{"text": "…"}}'
            ) from None


def _lines(file: str) -> Iterator[str]:
    try:
        if file == "-":
            yield from (line.rstrip("\n") for line in sys.stdin)
        else:
            with Path(file).open(encoding="utf-8") as lines:
                yield from (line.rstrip("\n") for line in lines)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from error

"""Entry point of `patamar`: finds the subcommand, runs it, and turns errors into one sentence."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from multi_exit.errors import PatamarError

# Name -> one line of help. The module is cli.<name>; it is imported only when it is called,
# so that serving never loads torch.
COMMANDS = {
    "quickstart": "train, export, calibrate and serve the example, doing only what is not done yet",
    "train": "train a multi-exit checkpoint from a TOML configuration",
    "evaluate": "score every exit of a checkpoint or a bundle on labelled texts",
    "experiment": "train a grid of methods, tasks and seeds, and compare them with intervals",
    "pilot": "measure the angles between the losses' gradients over a training run",
    "export": "turn a checkpoint into a sealed bundle of ONNX graphs",
    "quantise": "make an int8 bundle of an fp32 one, where that keeps its labels",
    "calibrate": "new operating points for a bundle, from your own texts",
    "serve": "answer POST /classify from a bundle",
    "classify": "classify the texts of a file, without a server",
    "bench": "measure the engine and the server: staging, efficiency, load, overload, peers",
}

_SERVING_COMMANDS = frozenset({"serve", "classify", "calibrate"})
_OWN_PACKAGES = frozenset({"cli", "bench", "deploy", "export", "service", "training", "multi_exit"})

EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand. Returns its exit status: 2 for bad input, 130 after Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="patamar",
        description="Text classification that stops thinking when it knows.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    wanted = next((word for word in given if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == wanted:
            _load(name).add_arguments(subparser)
    options = parser.parse_args(given)
    if options.version:
        print(_version())
        return 0
    if options.command is None:
        parser.print_help()
        return EXIT_REFUSED
    _log_to_terminal()
    try:
        return _load(options.command).run(options)
    except ModuleNotFoundError as error:
        print(
            f"patamar {options.command}: {_missing_package(error, options.command)}",
            file=sys.stderr,
        )
        return EXIT_REFUSED
    except PatamarError as error:
        print(f"patamar {options.command}: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        print(f"patamar {options.command}: interrupted; what was finished is kept", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`| head`): not an error of ours.
        sys.stderr.close()
        return 0


def _log_to_terminal() -> None:
    """Our own packages tell how they get on; of libraries only warnings are shown."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for package in (*_OWN_PACKAGES, "uvicorn"):
        logging.getLogger(package).setLevel(logging.INFO)


class _Subcommand(Protocol):
    """What every module of a subcommand has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


def _load(name: str) -> _Subcommand:
    return cast("_Subcommand", importlib.import_module(f"cli.{name}"))


def _missing_package(error: ModuleNotFoundError, command: str) -> str:
    """Says which extra brings a package; raises the error again where the package is our own."""
    package = (error.name or "").split(".")[0]
    if package in _OWN_PACKAGES:
        raise error
    extra = "serve" if command in _SERVING_COMMANDS else "train"
    return f"the package {package!r} is missing; install `patamar[{extra}]`"


def _version() -> str:
    from importlib.metadata import version

    return version("patamar")


if __name__ == "__main__":
    sys.exit(main())

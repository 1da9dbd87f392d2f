"""`patamar serve BUNDLE`: every option is also a setting PATAMAR_…, and the option wins."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, nargs="?", help="sealed bundle (or PATAMAR_BUNDLE)")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes a free one")
    parser.add_argument("--provider", choices=("auto", "cpu", "cuda"), help="where stages run")
    parser.add_argument("--threads", type=int, help="threads of the stages; 0 for all there are")


def run(options: argparse.Namespace) -> int:
    from service.main import serve
    from service.settings import load_settings

    names = ("bundle", "host", "port", "provider", "threads")
    given = {name: getattr(options, name) for name in names}
    serve(load_settings(**{name: value for name, value in given.items() if value is not None}))
    return 0

"""A Python environment of its own for each peer, made once: their versions are not ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.peers.kinds import OWN_PROGRAMS, PeerKind
from multi_exit.errors import ConfigurationError

_STAMP = "installed.txt"


def programs_of(kind: PeerKind, environments: Path) -> Path:
    """The folder of the programs that run a peer; installs them where that is not done yet.

    Raises ConfigurationError with the end of pip's words where they cannot be installed.
    """
    if not kind.requirements:
        return OWN_PROGRAMS
    folder = environments / kind.name
    programs, stamp = folder / "bin", folder / _STAMP
    wanted = "\n".join(kind.requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return programs
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], kind)
    _run([str(programs / "python"), "-m", "pip", "install", *kind.requirements], kind)
    stamp.write_text(wanted)
    return programs


def _run(command: list[str], kind: PeerKind) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigurationError(
            f"the peer {kind.name} cannot be installed: {(done.stderr or done.stdout)[-2000:]}"
        )

"""State of an unfinished run on disk, so that a run killed at any step goes on bit for bit.

Beside the output folder: NAME.run/ holds configuration.json, the newest state, and the weights of
the best epoch so far. Tensors are safetensors, the rest is JSON; nothing is unpickled.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file, save_file
from torch import Tensor

from multi_exit.errors import ConfigurationError
from training.config import TrainingConfig
from training.history import HISTORY_FILE, History
from training.model import MultiExitModel


class RunState(BaseModel):
    """Everything of a run that is not a tensor. step: mini-batches done."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = 0
    seconds: float = 0.0
    best_scores: tuple[float, ...] = ()
    best_epoch: int = -1
    kept: tuple[float, ...] = ()
    scaler_scale: float | None = None
    scaler_growth: int = 0

    @property
    def best_mean(self) -> float:
        scores = self.best_scores
        return sum(scores) / len(scores) if scores else float("-inf")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Files of one unfinished run. read_only: another process writes them, this one resumes."""

    path: Path
    read_only: bool = False

    @classmethod
    def open(cls, output: Path, config: TrainingConfig, *, read_only: bool = False) -> RunFolder:
        """The folder beside `output`. Raises ConfigurationError where another run is in it."""
        folder = cls(output.with_name(f"{output.name}.run"), read_only)
        wanted = config.model_dump(mode="json")
        known = folder.path / "configuration.json"
        if known.exists():
            if json.loads(known.read_text()) != wanted:
                raise ConfigurationError(
                    f"{folder.path} holds an unfinished run of another configuration; finish it, "
                    "remove it, or choose another output"
                )
            return folder
        if read_only:
            return folder
        # Without its configuration, what is there is left of a run that was being removed.
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.path.mkdir(parents=True)
        _write(known, json.dumps(wanted, indent=1))
        return folder

    @property
    def history(self) -> History:
        return History(self.path / HISTORY_FILE, self.read_only)

    def check_data(self, fingerprints: dict[str, str]) -> None:
        """Raises ConfigurationError where the run began with other texts."""
        known = self.path / "data.json"
        if not known.exists():
            if self.read_only:
                return
            _write(known, json.dumps(fingerprints, indent=1))
        elif json.loads(known.read_text()) != fingerprints:
            raise ConfigurationError(
                f"the data changed since the unfinished run in {self.path} began; restore them, or "
                "remove the folder to begin anew"
            )

    def save(
        self, state: RunState, model: MultiExitModel, optimiser: torch.optim.Optimizer
    ) -> None:
        """Writes a new state, then removes the one before."""
        if self.read_only:
            return
        tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
        for index, values in optimiser.state_dict()["state"].items():
            for name, value in values.items():
                tensors[f"optimiser/{index}/{name}"] = torch.as_tensor(value)
        tensors["random/cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors["random/cuda"] = torch.cuda.get_rng_state()
        target = self.path / f"state-{state.step:09d}"
        scratch = self.path / "writing"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        save_file(
            {k: v.detach().cpu().contiguous() for k, v in tensors.items()}, scratch / "tensors"
        )
        (scratch / "state.json").write_text(state.model_dump_json())
        scratch.rename(target)
        for older in self._states()[:-1]:
            shutil.rmtree(older)

    def load(self, model: MultiExitModel, optimiser: torch.optim.Optimizer) -> RunState:
        """Restores the newest state, if any, into model, optimiser and random generators."""
        states = self._states()
        if not states:
            self.history.forget_after(0)
            return RunState()
        tensors = load_file(states[-1] / "tensors")
        model.load_state_dict(_under(tensors, "model/"))
        restored: dict[int, dict[str, Tensor]] = {}
        for key, value in _under(tensors, "optimiser/").items():
            index, name = key.split("/", 1)
            restored.setdefault(int(index), {})[name] = value
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": restored, "param_groups": groups})
        torch.set_rng_state(tensors["random/cpu"])
        if "random/cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["random/cuda"])
        state = RunState.model_validate_json((states[-1] / "state.json").read_bytes())
        self.history.forget_after(state.step)
        return state

    def save_best(self, model: MultiExitModel, epoch: int) -> None:
        """Keeps the weights of an epoch. The newest is not yet the best until a state says so."""
        if self.read_only:
            return
        scratch = self.path / "writing-best"
        weights = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(weights, scratch)
        scratch.rename(self._best(epoch))

    def load_best(self, epoch: int) -> dict[str, Tensor]:
        """Weights that `save_best` kept."""
        return load_file(self._best(epoch))

    def forget_best(self, *, but: int) -> None:
        """Removes the weights of all epochs but one."""
        if self.read_only:
            return
        for path in self.path.glob("best-*"):
            if path != self._best(but):
                path.unlink()

    def remove(self) -> None:
        """Removes everything: the run is finished. Interrupted, it leaves nothing to go on from."""
        (self.path / "configuration.json").unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def _states(self) -> list[Path]:
        return sorted(self.path.glob("state-*"))

    def _best(self, epoch: int) -> Path:
        return self.path / f"best-{epoch:04d}.safetensors"


def scaler_state(scaler: torch.amp.GradScaler) -> dict[str, float | int]:
    """Fields of RunState for a loss scaler; none where it is not in use."""
    if not scaler.is_enabled():
        return {}
    state = scaler.state_dict()
    return {"scaler_scale": state["scale"], "scaler_growth": state["_growth_tracker"]}


def restore_scaler(scaler: torch.amp.GradScaler, state: RunState) -> None:
    """Puts a loss scaler back where a state left it."""
    if scaler.is_enabled() and state.scaler_scale is not None:
        scaler.load_state_dict(
            {
                **scaler.state_dict(),
                "scale": state.scaler_scale,
                "_growth_tracker": state.scaler_growth,
            }
        )


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)
    }


def _write(path: Path, text: str) -> None:
    scratch = path.with_name(f"{path.name}.writing")
    scratch.write_text(text)
    scratch.replace(path)

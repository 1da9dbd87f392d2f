"""Runs the stage graphs of a bundle on one device, with hidden states kept on that device.

Owner: whoever made the runner, one thread. Rows that leave are dropped inside the next graph
(`keep`); rows of several groups are joined by the bundle's merge graph. The same code path, I/O
binding included, runs on CPU and GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from multi_exit.batch import TokenBatch
from multi_exit.bundle import Bundle
from multi_exit.errors import BundleError, ProviderUnavailable

ProviderChoice = Literal["auto", "cpu", "cuda"]
Provider = Literal["cpu", "cuda"]

_ORT_NAMES: dict[Provider, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_ORT_ERROR_LEVEL = 3
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class RowState:
    """Hidden states of rows between two stages. Opaque: only the runner looks inside."""

    hidden: ort.OrtValue  # [rows, length, hidden], on the device
    attention_mask: NDArray[np.int64]  # [rows, length]

    @property
    def rows(self) -> int:
        return len(self.attention_mask)

    @property
    def length(self) -> int:
        return int(self.attention_mask.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class StageResult:
    """What a stage gives: logits [batch, K] and entropy [batch], float32, and the rows' state.

    state is None after the last stage, which has nothing to hand on.
    """

    state: RowState | None
    logits: NDArray[np.float32]
    entropy: NDArray[np.float32]


class StageRunner:
    """Sessions of one bundle. Not thread-safe: one owner.

    Raises ProviderUnavailable where `provider` was asked for and is not to be had, and
    BundleError where a graph cannot be loaded.
    """

    def __init__(self, bundle: Bundle, *, provider: ProviderChoice, threads: int) -> None:
        share_one_thread_pool(threads)
        self.provider: Provider = _choose(provider)
        manifest = bundle.manifest
        self._token_inputs = manifest.model_inputs
        self._labels = len(manifest.labels)
        self._hidden_size = manifest.hidden_size
        self._hidden_type = np.float16 if manifest.precision == "fp16" else np.float32
        self._sessions = [self._open(bundle, stage.file) for stage in manifest.stages]
        self._merge = self._open(bundle, manifest.merge_file)

    @property
    def stages(self) -> int:
        return len(self._sessions)

    def start(self, tokens: TokenBatch) -> StageResult:
        """Runs stage 1 on a batch of tokens."""
        binding = self._sessions[0].io_binding()
        for name in self._token_inputs:
            binding.bind_cpu_input(name, getattr(tokens, name))
        return self._run(1, binding, tokens.attention_mask)

    def advance(self, stage: int, state: RowState, keep: NDArray[np.int64]) -> StageResult:
        """Runs stage 2 or later on the rows `keep` (int64 [batch], row numbers of `state`)."""
        binding = self._sessions[stage - 1].io_binding()
        attention_mask = np.ascontiguousarray(state.attention_mask[keep])
        binding.bind_ortvalue_input("hidden", state.hidden)
        binding.bind_cpu_input("attention_mask", attention_mask)
        binding.bind_cpu_input("keep", keep)
        return self._run(stage, binding, attention_mask)

    def merge(self, states: Sequence[RowState]) -> RowState:
        """Joins rows of equal length, in order, on the device. Raises ValueError for none."""
        if not states or len({state.length for state in states}) > 1:
            raise ValueError("merge needs states of one length (a bug)")
        return reduce(self._merge_two, states)

    def close(self) -> None:
        """Frees the sessions; the runner is of no use afterwards."""
        self._sessions.clear()
        del self._merge

    def _merge_two(self, first: RowState, second: RowState) -> RowState:
        binding = self._merge.io_binding()
        binding.bind_ortvalue_input("first", first.hidden)
        binding.bind_ortvalue_input("second", second.hidden)
        binding.bind_output("merged", self.provider)
        self._merge.run_with_iobinding(binding)
        attention_mask = np.concatenate([first.attention_mask, second.attention_mask])
        return RowState(binding.get_outputs()[0], attention_mask)

    def _run(
        self, stage: int, binding: ort.IOBinding, attention_mask: NDArray[np.int64]
    ) -> StageResult:
        # Outputs of known shape are placed here: having onnxruntime place them costs some 30
        # microseconds a stage more.
        rows, length = attention_mask.shape
        logits = np.empty((rows, self._labels), dtype=np.float32)
        entropy = np.empty(rows, dtype=np.float32)
        for name, values in (("logits", logits), ("entropy", entropy)):
            binding.bind_output(name, "cpu", 0, np.float32, values.shape, values.ctypes.data)
        state = None
        if stage < self.stages:
            hidden = ort.OrtValue.ortvalue_from_shape_and_type(
                [rows, length, self._hidden_size], self._hidden_type, self.provider
            )
            binding.bind_ortvalue_output("hidden_out", hidden)
            state = RowState(hidden, attention_mask)
        self._sessions[stage - 1].run_with_iobinding(binding)
        return StageResult(state=state, logits=logits, entropy=entropy)

    def _open(self, bundle: Bundle, file: str) -> ort.InferenceSession:
        return open_session(bundle.path / file, self.provider)


def open_session(path: Path, provider: Provider) -> ort.InferenceSession:
    """A session that shares the process's one pool of threads; runner made first, it is sized.

    Raises BundleError for a graph that cannot be loaded, ProviderUnavailable where onnxruntime
    takes another provider than asked for.
    """
    options = ort.SessionOptions()
    # One shared pool: a spinning pool a session makes twelve stages 10 to 13 times slower.
    options.use_per_session_threads = False
    options.log_severity_level = _ORT_ERROR_LEVEL
    options.add_session_config_entry("session.use_env_allocators", "1")
    wanted = _ORT_NAMES[provider]
    fallback = [] if provider == "cpu" else [_ORT_NAMES["cpu"]]
    try:
        session = ort.InferenceSession(str(path), options, providers=[wanted, *fallback])
    except Exception as error:
        # onnxruntime's errors share no parent but Exception.
        raise BundleError(f"onnxruntime cannot load {path}: {error}") from error
    got = session.get_providers()[0]
    # onnxruntime falls back to CPU in silence.
    if got != wanted:
        raise ProviderUnavailable(_refusal(provider, f"onnxruntime chose {got}"))
    return session


def available_providers() -> tuple[Provider, ...]:
    """The providers that this installation of onnxruntime offers, best first."""
    offered = ort.get_available_providers()
    return tuple(name for name in ("cuda", "cpu") if _ORT_NAMES[name] in offered)


def _choose(choice: ProviderChoice) -> Provider:
    offered = available_providers()
    if choice == "auto":
        return offered[0]
    if choice not in offered:
        raise ProviderUnavailable(
            _refusal(choice, f"onnxruntime {ort.__version__} here offers {', '.join(offered)}")
        )
    return choice


def _refusal(wanted: str, found: str) -> str:
    return (
        f"provider {wanted!r} was asked for, but {found}; install the `gpu` extra with a CUDA "
        "version that fits it, or ask for provider 'cpu' or 'auto'"
    )


def share_one_thread_pool(threads: int) -> None:
    """Sizes onnxruntime's process-wide pool; the first runner of a process decides."""
    try:
        ort.set_global_thread_pool_sizes(threads, 1)
        cpu = ort.OrtMemoryInfo(
            "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
        )
        ort.create_and_register_allocator(cpu, None)
    except Exception as error:
        # The library raises a bare `Fail` for a pool that exists; anything else is not ours.
        if "already been created" not in str(error):
            raise
        logger.debug("the thread pool of this process exists; threads=%d not applied", threads)

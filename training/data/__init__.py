"""Labelled texts: reading files of many formats, and splitting them so that nothing leaks."""

from training.data.config import DataConfig, MetricName
from training.data.example import LabelledExample
from training.data.splits import Splits, load_splits

__all__ = ["DataConfig", "LabelledExample", "MetricName", "Splits", "load_splits"]

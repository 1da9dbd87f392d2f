"""Pictures a person can read about trained multi-exit models, and the report that holds them."""

from training.report.checkpoint import CheckpointReport, report_checkpoint
from training.report.comparison import report_cells
from training.report.numbers import Table
from training.report.write import Picture, write_report

__all__ = [
    "CheckpointReport",
    "Picture",
    "Table",
    "report_cells",
    "report_checkpoint",
    "write_report",
]

"""From a checkpoint to a sealed bundle: graphs, verification, calibration, sealing."""

"""Many trainings as one grid: methods by tasks by seeds, resumable, compared with intervals."""

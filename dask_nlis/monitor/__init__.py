"""Monitoring: what a job does and where its time goes, on every scheduler, and a page of it at the end."""

from dask_nlis.monitor.verb import Monitor, monitor

__all__ = ["Monitor", "monitor"]

"""Client and worker of the job scheduler Belfry. See README.md."""
from .client import Client
from .errors import ApiError, BelfryError, FieldError, Permanent, RetryAfter, Snooze, Unavailable
from .models import Attempt, Job, JobFilter, LastResult, Manifest, RunFilter, RunLog, RunRecord
from .worker import Run, Worker

__version__ = "0.1.0"

__all__ = [
    "ApiError", "Attempt", "BelfryError", "Client", "FieldError", "Job", "JobFilter", "LastResult", "Manifest", "Permanent",
    "RetryAfter", "Run", "RunFilter", "RunLog", "RunRecord", "Snooze", "Unavailable", "Worker",
]

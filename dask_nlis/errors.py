"""Errors and warnings: one line each, naming the argument, what came, what is allowed, one remedy.

NlisError
 +- InputError (ValueError)
 |   +- NonFiniteError
 |   +- MatrixMismatchError
 |   +- NotHomogeneousError
 |   +- IdentityResidualError
 |   +- ZeroLossSingularityError
 |   +- MemoryLimitError (MemoryError)
 |   +- MissingExtraError (ImportError)
 |   +- FingerprintMismatchError
 |   +- DamagedDataError
 |   +- ChangedDataError
 +- InputTypeError (TypeError)
 +- MissingDataError (FileNotFoundError)
 +- ReadError (OSError)
 +- StoreExistsError (FileExistsError)
 +- StoreLockedError (RuntimeError)
 +- NotWritableError (PermissionError)
 +- StoreWriteError (OSError)
 +- IncompleteRunError (RuntimeError)
 +- DeviceError (RuntimeError)
 +- ClusterError (RuntimeError)
     +- DeadlineError (TimeoutError)
NlisWarning (UserWarning)
 +- RankAmbiguityWarning
 +- DataConversionWarning
 +- PerformanceWarning
 +- ConvergenceWarning
 +- ScaleWarning
 +- UnderdeterminedWarning
 +- MissingDataWarning
"""

from dask_nlis.redact import redacted

#: Characters of a message, and those of its end that are kept where it is longer: the remedy stands there.
_LONGEST, _END = 300, 150


class NlisError(Exception):
    """Base of every error raised by dask_nlis; its message is one line without secrets, whatever was given and is shown in it."""

    def __init__(self, *message: object) -> None:
        super().__init__(*(_one_line(part) if isinstance(part, str) else part for part in message))


def _one_line(message: str) -> str:
    """One line of at most 300 characters: an array or a table that came takes many, and is cut in its middle."""
    message = redacted(message)
    line = " ".join(message.split()) if "\n" in message else message
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - _END - 5]} ... {line[-_END:]}"


class InputError(NlisError, ValueError):
    """An argument has a value that is not allowed.

    `row`, where known, is the row in the arrays it was found in; the task of a block says which row of X that is.
    """

    def __init__(self, *message: object, row: int | None = None) -> None:
        super().__init__(*message)
        self.row = row


class NonFiniteError(InputError):
    """Data hold NaN, an infinity, or a value that overflows; the first cell and the count are named."""


class MatrixMismatchError(InputError):
    """A factor of one matrix was used with another."""


class IdentityResidualError(InputError):
    """An adjoint integrated along the ray misses f(theta) = f(0) + <theta, f*> by more than is accepted."""


class NotHomogeneousError(InputError):
    """A model declared homogeneous is not, or not of the degree given."""


class ZeroLossSingularityError(InputError):
    """Rows lie where the root of their loss has no slope; the first row and the count are named."""


class MemoryLimitError(InputError, MemoryError):
    """What was asked for does not fit into the memory of a worker or of this process, or did not when it was tried."""


class MissingExtraError(InputError, ImportError):
    """What was asked for needs a library that is not installed; the extra that brings it is named."""


class DamagedDataError(InputError):
    """What is stored cannot be decoded: a chunk or metadata cut short or altered; the file and the rows are named."""


class ChangedDataError(InputError):
    """What is stored was written anew after it was opened."""


class FingerprintMismatchError(InputError):
    """A run store was begun with other data, another theta, problem, design or version; the field is named."""


class InputTypeError(NlisError, TypeError):
    """An argument has a type that is not allowed."""


class MissingDataError(NlisError, FileNotFoundError):
    """A path holds no array, no group or no run, or some of the chunks of an array are not there."""


class ReadError(NlisError, OSError):
    """Rows could not be read, also when it was tried again; the array, the rows and the last cause are named."""


class StoreExistsError(NlisError, FileExistsError):
    """The output path is already in use."""


class StoreLockedError(NlisError, RuntimeError):
    """Another process is writing the run store."""


class NotWritableError(NlisError, PermissionError):
    """The output path, or the folder it is to be made in, may not be written by this user."""


class StoreWriteError(NlisError, OSError):
    """Something could not be written to the run store, as on a full disk; what was finished before is kept."""


class IncompleteRunError(NlisError, RuntimeError):
    """A run store has no completion marker."""


class DeviceError(NlisError, RuntimeError):
    """A device was asked for that is not there."""


class ClusterError(NlisError, RuntimeError):
    """The cluster cannot do the work: no workers, workers that die, lost scheduler, closed client, deadline passed."""


class DeadlineError(ClusterError, TimeoutError):
    """A compute took longer than the Dask config key `dask-nlis.timeout` allows, on whatever scheduler."""


class NlisWarning(UserWarning):
    """Base of every warning given by dask_nlis; its message shows no secrets."""

    def __init__(self, *message: object) -> None:
        super().__init__(*(redacted(part) if isinstance(part, str) else part for part in message))


class RankAmbiguityWarning(NlisWarning):
    """A singular value lies so close to the tolerance that the rank is a matter of opinion."""


class DataConversionWarning(NlisWarning):
    """Input was read in another shape or type than it came in."""


class PerformanceWarning(NlisWarning):
    """The layout of the input makes the work slower than it need be."""


class ConvergenceWarning(NlisWarning):
    """A fit did not pass its own checks."""


class ScaleWarning(NlisWarning):
    """The units of the columns decide the result."""


class UnderdeterminedWarning(NlisWarning):
    """There are fewer rows than parameters."""


class MissingDataWarning(NlisWarning):
    """Chunks of an array that is read are not there and read as its fill value, as was asked for."""

"""Every error that see-tune raises on purpose, and the exit code each one means.

    SeeTuneError                1  the run failed
    ├── UserError               2  something the user gave is wrong: never a traceback
    │   ├── SpecError           2  the YAML file, a --set, a flag
    │   ├── DatasetError        2  a dataset's root, layout, counts or images
    │   ├── WeightsError        2  a backbone's name or its weights
    │   ├── StudyError          2  a study that is locked, changed, absent or finished
    │   ├── ClusterError        2  a cluster that does not answer, refuses the token, or has nodes that cannot work
    │   └── TrackingServerError 2  a tracking server that a command asks is away, or refuses the login
    ├── EvaluationError         1  embeddings that cannot be ranked (NaN, infinite, wrong shape)
    ├── CheckpointError         1  no good checkpoint where one must be
    ├── TrainingError           1  a trial that would fail again: NaN loss, collapse, out of memory at micro-batch 1
    ├── TrackingError           1  the tracking server refused what it was given
    ├── ExportError             1  a model that a format cannot hold, or that a written file does not equal
    ├── StudyFailedError        1  a study that ended without an answer
    ├── StorageAwayError      130  the storage of the trials went away while they ran; the same command continues
    └── EngineLostError       130  Ray ended before its study did; the same command continues

A message has three parts: what was wrong (value, file, line), what is valid, what to do next.
"""


class SeeTuneError(Exception):
    """The root of the tree; `exit_code` is what the command line ends with."""

    exit_code = 1


class UserError(SeeTuneError):
    """Something the user gave is wrong."""

    exit_code = 2


class SpecError(UserError):
    """The YAML file, a ``--set`` or a flag is wrong."""


class DatasetError(UserError):
    """A dataset's root, layout, counts or images are not what they must be."""


class WeightsError(UserError):
    """A backbone's name is unknown, or its weights do not fit."""


class StudyError(UserError):
    """A study is locked by another process, was changed, does not exist, or is finished."""


class ClusterError(UserError):
    """A cluster does not answer, refuses the token, or has nodes that cannot do their work."""


class TrackingServerError(UserError):
    """The tracking server that a command asks does not answer, or refuses the login."""


class EvaluationError(SeeTuneError):
    """Embeddings cannot be ranked: non-finite values or shapes that do not agree."""


class CheckpointError(SeeTuneError):
    """There is no good checkpoint where one must be."""


class TrainingError(SeeTuneError):
    """A trial failed in a way that would repeat: NaN loss, collapsed embeddings, out of memory at micro-batch 1."""


class TrackingError(SeeTuneError):
    """The tracking server refused what it was given."""


class ExportError(SeeTuneError):
    """A format cannot hold the model, or what was written does not give the model's embeddings."""


class StudyFailedError(SeeTuneError):
    """A study ended without an answer."""


class StorageAwayError(SeeTuneError):
    """The storage of the trials went away in the middle and did not come back; the study is interrupted."""

    exit_code = 130


class EngineLostError(SeeTuneError):
    """Ray ended in the middle; the study is interrupted."""

    exit_code = 130

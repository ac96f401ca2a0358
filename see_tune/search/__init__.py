"""Ray and Optuna at work: the ledger, the searcher over it, the runner.

Ray reads its settings when it is imported, so they are set here, before any module of this room imports it.
"""

import os
import secrets

os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_AIR_NEW_OUTPUT="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1",
    RAY_CHDIR_TO_TRIAL_DIR="0",  # a relative dataset.root or model.weights means the same in a trial as for the driver
    TUNE_DISABLE_SIGINT_HANDLER="1",  # the study's own handler stops the desk
    RAY_DISABLE_FAILURE_SIGNAL_HANDLER="1",  # it takes SIGTERM for a crash: prints a trace, and aborts 3 s later
    # The desk limits what is out. Under Tune's own limit of one trial that waits, a short trial's freed actor takes the next
    # one before a second actor has started, over and over: everything ran in one actor while the other slots stayed empty.
    TUNE_MAX_PENDING_TRIALS_PG="100000",
    # What the raylet has to say of a killed worker goes to stdout, whatever `log_to_driver` is, unless its filter takes it.
    RAY_DEDUP_LOGS="1",
    RAY_DEDUP_LOGS_SKIP_REGEX=".",
    TUNE_GLOBAL_CHECKPOINT_S="100000",  # Ray's snapshot is a record of nothing here
)
if "RAY_AUTH_MODE" not in os.environ:
    # Even a local Ray takes commands from whoever reaches its ports: a token closes them. A cluster's own is the user's to
    # give; else it is one of this process alone.
    os.environ["RAY_AUTH_MODE"] = "token"
    if not os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)

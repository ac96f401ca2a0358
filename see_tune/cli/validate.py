"""`see-tune validate FILE` and `see-tune schema`: a study's YAML, checked without its data."""

from __future__ import annotations

import json
import sys

from see_tune.cli.options import Overrides, StudyFile
from see_tune.wording import counted


def validate(file: StudyFile, set_: Overrides = None) -> None:
    """Check a study's YAML. Exit 0, or 2 with every problem by file, line and key."""
    from see_tune.spec.load import load_study

    loaded = load_study(file, overrides=set_ or [])
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    spec = loaded.spec
    searched = ", ".join(parameter.name for parameter in loaded.space.parameters)
    print(f"{file}: valid. {spec.study}: {counted(spec.budget.trials, 'trial')} on {spec.dataset.called}, searching {searched}")


def schema() -> None:
    """Print the JSON Schema of a study's YAML, for editors."""
    from see_tune.spec.schema import study_schema

    print(json.dumps(study_schema(), indent=2))

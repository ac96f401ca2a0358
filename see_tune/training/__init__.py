"""One training, from a TrialSpec to a TrialResult. `train` is the door; trainer.py reads from top to bottom."""

from see_tune.training.trainer import load_trained, train

__all__ = ["load_trained", "train"]

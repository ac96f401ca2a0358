"""From a TrialSpec to a TrialResult: `train` is one training (see trainer.py), `train_trial` the mean of several."""

from see_tune.training.members import check_folder, train_trial
from see_tune.training.trainer import load_trained, train

__all__ = ["check_folder", "load_trained", "train", "train_trial"]

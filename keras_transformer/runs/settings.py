"""What a run is told about its length, its evaluations, its checkpoints and the weights that it ends with."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How long a run is, how it is watched, and the weights that it ends with. `check` has the rules."""

    train_steps: int = 100_000
    """Number of updates."""
    evaluation_steps: int = 2_000
    """Updates between two evaluations on the development set; a checkpoint is written at each."""
    dev_bleu_sentences: int = 500
    """Sentences of the development set that are translated at each evaluation."""
    checkpoint_steps: int | None = None
    """Updates between checkpoints besides; by default there are only those of the evaluations."""
    checkpoint_seconds: float | None = None
    """Seconds after which a checkpoint is written besides; the paper's models had one every 600."""
    checkpoints_to_keep: int = 10
    """Newest checkpoints that stay in the run directory."""
    best_checkpoints_to_keep: int = 0
    """Best checkpoints, by monitor, that stay besides."""
    monitor: Literal["val_bleu", "val_loss"] = "val_bleu"
    """What tells which checkpoints are best, and when to stop early: BLEU or loss of the development set."""
    early_stopping: int | None = None
    """Evaluations in a row without an improvement of monitor after which training stops; by default it does not."""
    average: Literal["last", "best", "moving"] = "last"
    """Weights at the end: the mean of the last checkpoints, of the best ones, or the moving average of all updates."""
    average_checkpoints: int = 5
    """Checkpoints whose weights are averaged at the end."""
    average_momentum: float = 0.999
    """Share that the moving average keeps at each update."""

    @property
    def monitor_mode(self) -> str:
        """Whether a higher or a lower `monitor` is better: "max" or "min"."""
        return "max" if self.monitor == "val_bleu" else "min"

    def check(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            ValueError: naming the setting, the rule and the value.
        """
        for name in ("train_steps", "evaluation_steps", "dev_bleu_sentences", "average_checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive. Received: {getattr(self, name)}")
        for name in ("checkpoint_steps", "checkpoint_seconds", "early_stopping"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive. Received: {getattr(self, name)}")
        if self.train_steps % self.evaluation_steps:
            raise ValueError(
                "train_steps must be a multiple of evaluation_steps, so that training ends with an evaluation. "
                f"Received: train_steps={self.train_steps}, evaluation_steps={self.evaluation_steps}"
            )
        kept = "best_checkpoints_to_keep" if self.average == "best" else "checkpoints_to_keep"
        if self.average != "moving" and self.average_checkpoints > getattr(self, kept):
            raise ValueError(
                f"average_checkpoints must not exceed {kept}. "
                f"Received: {self.average_checkpoints} of {getattr(self, kept)}"
            )
        if not 0 < self.average_momentum < 1:
            raise ValueError(f"average_momentum must be between 0 and 1. Received: {self.average_momentum}")

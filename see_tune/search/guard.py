"""What many failures mean: a device that fails alone gets no more trials; a study whose trials all fail ends early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from see_tune.results import TrialResult
from see_tune.search.desk import Desk, DeskListener, Work
from see_tune.search.worker import is_quarantined, node_of
from see_tune.wording import counted

_IN_A_ROW = 5
_FEWEST_FOR_HALF = 10


@dataclass(frozen=True)
class _End:
    device: str
    cause: str | None


@dataclass
class Quarantine(DeskListener):
    """Keeps rows away from a device, or a whole node, whose last `after` trials failed while another's last one did not.

    A worker that was lost counts as a failure here. It counts one session: whoever mended the machine starts again.

    note: told when a device is set aside.
    """

    after: int
    desk: Desk
    note: Callable[[str], None]
    _ends: list[_End] = field(default_factory=list)

    def on_end(self, work: Work, result: TrialResult) -> None:
        lost = result.status == "interrupted" and result.cause is not None
        if not work.where or (result.status == "interrupted" and not lost):
            return
        cause = result.cause or "unknown" if lost or result.status == "failed" else None
        self._ends.append(_End(work.where, cause))
        self._look(list(self._ends), "")
        self._look([_End(node_of(end.device), end.cause) for end in self._ends], "node ")

    def _look(self, ends: list[_End], kind: str) -> None:
        for name in dict.fromkeys(end.device for end in ends):
            last = [end for end in ends if end.device == name][-self.after :]
            fails_alone = len(last) == self.after and all(end.cause for end in last) and self._another_is_well(ends, name)
            if fails_alone and not is_quarantined(name, self.desk.quarantined) and name not in self.desk.quarantined:
                self.desk.quarantined[name] = str(last[-1].cause)
                self.note(
                    f"quarantine: {kind}{name} failed {counted(self.after, 'trial')} in a row and others did not, so it gets no "
                    f"more in this session. The last one: {last[-1].cause}"
                )

    def _another_is_well(self, ends: list[_End], name: str) -> bool:
        newest = {end.device: end.cause for end in ends}
        return any(
            cause is None and other != name and not is_quarantined(other, self.desk.quarantined)
            for other, cause in newest.items()
        )


@dataclass
class FailureGuard(DeskListener):
    """Stops the desk after 5 failures in a row that no single device explains, or when half of at least 10 trials failed.

    It counts one session: whoever mends the cause and starts the study again begins at nought.

    verdict: why the desk was stopped, and what the failures have in common; empty while it was not.
    """

    desk: Desk | None = None
    verdict: str = ""
    _ends: list[_End] = field(default_factory=list)

    def on_end(self, work: Work, result: TrialResult) -> None:
        if result.status == "interrupted":
            return
        failed = result.status == "failed"
        self._ends.append(_End(work.where or result.device, result.cause or "unknown" if failed else None))
        if self.desk and not self.verdict and failed and (self._all_of_the_last() or self._half()):
            self.verdict = self._describe()
            self.desk.stopping = True

    def _all_of_the_last(self) -> bool:
        last = self._ends[-_IN_A_ROW:]
        other_devices = {end.device for end in self._ends} - {end.device for end in last}
        blames_one_device = len({end.device for end in last}) == 1 and other_devices
        return len(last) == _IN_A_ROW and all(end.cause for end in last) and not blames_one_device

    def _half(self) -> bool:
        return len(self._ends) >= _FEWEST_FOR_HALF and 2 * len(self._failures()) >= len(self._ends)

    def _failures(self) -> list[_End]:
        return [end for end in self._ends if end.cause]

    def _describe(self) -> str:
        failures = self._failures()
        devices = Counter(end.device for end in failures)
        where = (
            f"all on {failures[0].device}" if len(devices) == 1 else ", ".join(f"{n} on {name}" for name, n in devices.items())
        )
        causes = Counter(end.cause for end in failures).most_common()
        said = "\n".join(f"  - {cause}" + (f" ({times} times)" if times > 1 else "") for cause, times in causes)
        return (
            f"{len(failures)} of {len(self._ends)} trials failed ({where}), so the study was stopped. What they say:\n{said}\n"
            "Mend the cause and run the same command again: it continues, and what failed is tried again."
        )

"""Legal holds: while one is on a series, nothing of it is removed, by rule or by hand."""

from dataclasses import dataclass

from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.names import check_no_token
from watchword.basics.times import iso
from watchword.index.indices import EVERY_SERIES

MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Hold:
    series: str  # in lower case, or `*`
    reason: str
    set_by: str
    set_at: int
    by_rule: bool = False  # declared by a rule, and released with it

    def __str__(self) -> str:
        what = "Every series" if self.series == EVERY_SERIES else self.series
        return f"{what} is held since {iso(self.set_at)} by {self.set_by}: {self.reason}"

    def refusal(self, message: str) -> Fault:
        """The fault for what the hold forbids. The message follows who set the hold, since when and why."""
        end = "" if self.reason.endswith((".", "!", "?")) else "."
        return Fault(
            Reason.SERIES_HELD,
            f"{self}{end} {message}",
            series=self.series,
            setBy=self.set_by,
            setAt=self.set_at,
            holdReason=self.reason,
        )


def check_hold_reason(value: object, where: str = "reason") -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_REASON or not value.isprintable():
        raise invalid(where, f"{where} must be printable text of 1 to {MAX_REASON} characters on one line.")
    return check_no_token(value, where)

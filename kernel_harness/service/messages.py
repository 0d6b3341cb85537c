"""What clients send and what the server answers, as JSON: the types behind the OpenAPI page."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernel_harness.core.arms import BASELINE

LONGEST_SOURCE = 1_000_000
"""The most characters of a kernel file: a worker accepts a file of 1 MB."""
MOST_IN_BATCH = 5000
"""The most submissions of one batch."""
MOST_WAITED_FOR = 500
"""The most jobs that one request waits for."""
LONGEST_WAIT_S = 30.0
"""The longest time that a request may wait for a verdict."""

Seconds = Annotated[float, Field(gt=0, le=3600)]
WaitSeconds = Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Options(_Message):
    """How a kernel is judged, as in `EvaluatorPool`."""

    precision: str | None = None
    timeout_s: Seconds = 60.0
    budget_s: Seconds | None = None
    baseline: str = BASELINE
    quick: bool = False
    sanitize: bool = False


class Submission(_Message):
    """One kernel to judge. Exactly one of `problem` and `problem_text` is given."""

    problem: str | None = Field(default=None, max_length=1000, description="the name of a problem of the server")
    problem_sha256: str | None = Field(
        default=None, description="the SHA-256 of the problem file that the client knows; the server refuses another"
    )
    problem_text: str | None = Field(
        default=None, max_length=LONGEST_SOURCE, description="the text of a problem file, if the server accepts texts"
    )
    source: str = Field(max_length=LONGEST_SOURCE, description="the text of a kernel file, Python or CUDA C++")
    suffix: Literal[".py", ".cu"] | None = Field(
        default=None, description="the kind of the kernel file; by default the first line of the source decides"
    )
    options: Options = Options()


class Batch(_Message):
    """Many kernels to judge."""

    submissions: list[Submission] = Field(max_length=MOST_IN_BATCH)


class Wanted(_Message):
    """Jobs whose results a client waits for."""

    ids: list[str] = Field(max_length=MOST_WAITED_FOR)
    wait_s: WaitSeconds = 0.0


class Status(BaseModel):
    """One job. `result` is a line of runs.jsonl without seeds, samples and drawn sizes."""

    id: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    ahead: int | None = Field(default=None, description="queued: at most so many jobs are judged before this one")
    estimate_s: float | None = Field(default=None, description="about how long it takes to the verdict, in seconds")
    reward: float | None = Field(default=None, description="done: the reward, 0 if the kernel did not pass")
    result: dict[str, Any] | None = None
    error: str | None = Field(default=None, description="failed: why the problem cannot be used")

    @property
    def finished(self) -> bool:
        """Whether the state is final."""
        return self.state not in ("queued", "running")


class NotTaken(BaseModel):
    """Why a submission was not taken. With `retry_after_s`, it may be sent again after so many seconds."""

    error: str
    retry_after_s: int | None = None


class Jobs(BaseModel):
    """The jobs of a request for several, in its order."""

    jobs: list[Status | NotTaken]

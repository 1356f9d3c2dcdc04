"""One job, whatever it brings."""

from dataclasses import dataclass

from servicekit.errors import NotSupported

from ingest.documents.access_changes import AccessChanges
from ingest.documents.file_ingestion import FileIngestion
from ingest.documents.index_writer import Alone
from ingest.documents.report import Report
from ingest.documents.text_ingestion import TextIngestion
from ingest.domain import AccessJob, FileJob, Job, Outcome, State, TextsJob
from ingest.ports import Originals


@dataclass(frozen=True, slots=True)
class Result:
    """How a job ended: its state, and of a job with texts what became of each."""

    state: State
    outcomes: tuple[Outcome, ...] = ()


class Ingestion:
    """Makes things findable.

    Args:
        files: Does jobs with a file.
        texts: Does jobs with texts.
        access: Does jobs that change who may see a document.
        originals: Where what they are about is.
    """

    def __init__(
        self, files: FileIngestion, texts: TextIngestion, access: AccessChanges, originals: Originals
    ) -> None:
        self._files = files
        self._texts = texts
        self._access = access
        self._originals = originals

    async def run(self, job: Job, report: Report, alone: Alone) -> Result:
        """Does a job. Doing it again changes nothing.

        Args:
            job: What to do.
            report: Told of the progress.
            alone: Tells whether every job that was accepted before is over, so that what is there as the job has
                it can be left as it is. Else it gets the job's generation: an older job must not win over this one.

        Raises:
            CausewayError: As `FileIngestion.run`, `TextIngestion.run` and `AccessChanges.run`.
            Settled: Somebody else has taken or ended the job.
        """
        match job:
            case FileJob():
                return Result(await self._files.run(job, report, alone))
            case TextsJob():
                outcomes = await self._texts.run(job, report, alone)
                state = State.SUCCEEDED if Outcome.STORED in outcomes else State.UNCHANGED
                return Result(state, outcomes)
            case AccessJob():
                return Result(await self._access.run(job, report, alone))
        raise NotSupported("The job is of a kind that this worker does not know.")

    async def clear(self, job: Job, state: State) -> None:
        """Removes what a job brought and nobody needs, once it is over. The original of a document that can be
        found stays: it can be asked for.

        Raises:
            Unavailable: The store does not answer.
        """
        if job.object_name and (isinstance(job, TextsJob) or state is not State.SUCCEEDED):
            await self._originals.remove(job.object_name)

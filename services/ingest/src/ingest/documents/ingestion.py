"""Runs a job with the class for its kind."""

from dataclasses import dataclass

from servicekit.errors import NotSupported

from ingest.documents.access_changes import AccessChanges
from ingest.documents.file_ingestion import FileIngestion
from ingest.documents.index_writer import EarlierJobsEnded
from ingest.documents.report import Report
from ingest.documents.text_ingestion import TextIngestion
from ingest.domain import AccessJob, FileJob, Job, Outcome, State, TextsJob
from ingest.ports import Originals


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a job: its final state and, for a job with texts, the outcome of each text."""

    state: State
    outcomes: tuple[Outcome, ...] = ()


class Ingestion:
    """Runs jobs.

    Args:
        files: Runs jobs with a file.
        texts: Runs jobs with texts.
        access: Runs jobs that change access lists.
        originals: The store of the jobs' objects.
    """

    def __init__(
        self, files: FileIngestion, texts: TextIngestion, access: AccessChanges, originals: Originals
    ) -> None:
        self._files = files
        self._texts = texts
        self._access = access
        self._originals = originals

    async def run(self, job: Job, report: Report, earlier_jobs_ended: EarlierJobsEnded) -> Result:
        """Run a job. A repeated run changes nothing.

        Args:
            job: The job.
            report: The report of the job.
            earlier_jobs_ended: Returns whether all jobs for the index that were accepted before this job have
                ended. If so, an unchanged document keeps its generation. Otherwise it gets the job's generation, so
                that an older job cannot replace it.

        Raises:
            CausewayError: As `FileIngestion.run`, `TextIngestion.run` and `AccessChanges.run`.
            EarlierJobsPending: Earlier jobs for the index have not ended.
            NotSupported: The worker does not know this kind of job.
            OwnershipLost: Another worker runs the job, or the job has ended.
            ParserDefect: The parser has a defect.
        """
        match job:
            case FileJob():
                return Result(await self._files.run(job, report, earlier_jobs_ended))
            case TextsJob():
                outcomes = await self._texts.run(job, report, earlier_jobs_ended)
                state = State.SUCCEEDED if Outcome.STORED in outcomes else State.UNCHANGED
                return Result(state, outcomes)
            case AccessJob():
                return Result(await self._access.run(job, report, earlier_jobs_ended))
        raise NotSupported("This worker does not support this kind of job.")

    async def remove_unused_object(self, job: Job, state: State) -> None:
        """Remove the object of a finished job, unless it is the original of a searchable document.

        Users can download the original of a searchable document. The document of a failed job is searchable if an
        earlier attempt of the job has stored it.

        Args:
            job: The job.
            state: Its final state.

        Raises:
            Unavailable, DeadlineExceeded: The store or the retriever does not answer.
        """
        if not job.object_name:
            return
        if isinstance(job, FileJob):
            if state is State.SUCCEEDED:
                return
            if state is State.FAILED and await self._files.has_stored(job):
                return
        await self._originals.remove(job.object_name)

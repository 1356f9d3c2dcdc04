"""Creates the worker of background responses from its collaborators."""

from starlette.types import ASGIApp

from gateway.adapters import Services
from gateway.answering.pipeline import Pipeline
from gateway.dialects.responses.dialect import Responses
from gateway.frontends.snapshot import CurrentFrontends
from gateway.response_runs.background import BackgroundRuns
from gateway.response_runs.ending import Ending
from gateway.routes.background import BackgroundAnswers
from gateway.routes.stored_responses import StoredResponses
from gateway.server.quota_enforcement import AnswerCount
from gateway.server.recording import Recording
from gateway.settings import Settings


def background_runs(
    settings: Settings,
    services: Services,
    dialect: Responses,
    pipeline: Pipeline,
    stored: StoredResponses,
    ending: Ending,
    profiles: CurrentFrontends,
) -> BackgroundRuns:
    """Return the worker that takes responses from the queue and answers them.

    Args:
        settings: The settings of the gateway.
        services: The gateway's collaborators.
        dialect: Parses requests.
        pipeline: Answers the requests.
        stored: Reads the responses that requests continue.
        ending: Ends responses that cannot be answered.
        profiles: Returns the front end profiles.
    """

    def with_records(app: ASGIApp) -> ASGIApp:
        counted = app if services.ledger is None else AnswerCount(app, services.ledger)
        return Recording(counted, services.records, services.prices, ())

    answers = BackgroundAnswers(
        dialect, pipeline, services.generator, stored, services.responses, profiles, services.calls, with_records
    )
    return BackgroundRuns(
        services.response_jobs,
        services.responses,
        services.response_log,
        ending,
        services.peers,
        answers.running,
        answers.answer,
        max_concurrent=settings.background_answers,
        timeout=settings.background_timeout,
    )

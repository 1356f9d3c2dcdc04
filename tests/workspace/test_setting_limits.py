from gateway.answering.guard import MAX_HELD_CHARACTERS, MAX_PIECE_LENGTH
from guardrails.settings import Settings


def test_a_detector_fails_before_the_gateway_stops_reading() -> None:
    """A detector that holds back more than the highest limit gets one more piece, at which it fails. Only then does
    the gateway stop reading.
    """
    field = Settings.model_json_schema()["properties"]["guardrails_hold_back_limit"]
    assert field["maximum"] == MAX_HELD_CHARACTERS - MAX_PIECE_LENGTH

from gateway.answering.guard import MAX_HELD_CHARACTERS
from guardrails.settings import Settings


def test_a_detector_fails_before_the_gateway_stops_reading() -> None:
    """The highest limit for held text in the guardrails is the number of characters that the gateway holds back."""
    field = Settings.model_json_schema()["properties"]["guardrails_hold_back_limit"]
    assert field["maximum"] == MAX_HELD_CHARACTERS

import io

import pytest
from ingest.parsing import scans
from ingest.parsing.refusals import TooLarge


@pytest.mark.parametrize("side", [11_000, 20_000])
def test_a_picture_with_too_many_pixels_is_too_large(side: int) -> None:
    """The declared size is checked, even if it is above Pillow's own limit."""
    with pytest.raises(TooLarge, match="limit is 100 million"):
        scans.opened(io.BytesIO(f"P5 {side} {side} 255\n".encode()))

"""guardrails.remote.config: the file of remote detectors."""

from pathlib import Path

import pytest
import trustme
from detection.chunking.chunkers import Chunking
from detection.domain import DetectorKind
from guardrails.remote.config import ChunkerConfig, parse
from servicekit.yaml_file import BadFile

_FILE = b"""
headers: [X-Request-Id]
detectors:
  hap:
    kind: text_contents
    url: https://hap:8000/base/
    timeout: 3
    default_threshold: 0.5
    concurrency: 4
    headers: [x-tenant]
    tls: {verify: false}
  relevance:
    kind: text_generation
    url: http://judge:9000
  whole:
    kind: text_contents
    url: http://judge:9000
    chunker: whole_doc
    across_choices: true
  cut:
    kind: text_contents
    url: http://judge:9000
    chunker: german
chunkers:
  german: {target: "dns:///chunkers:8085", chunker_id: de, timeout: 2, tls: {}}
"""


def test_the_file_lists_the_detectors() -> None:
    """The file lists detectors and chunkers, and headers for all detectors."""
    hap, relevance, whole, cut = parse(_FILE, "detectors.yaml")
    assert (hap.detector_id, hap.kind, str(hap.url)) == ("hap", DetectorKind.CONTENTS, "https://hap:8000/base")
    assert (hap.seconds, hap.threshold, hap.concurrency) == (3, 0.5, 4)
    assert (hap.chunking, hap.headers, hap.cross_choice) == (
        Chunking.SENTENCE,
        frozenset(["x-request-id", "x-tenant"]),
        False,
    )
    assert hap.tls is not None
    assert (relevance.chunking, relevance.tls) == (Chunking.WHOLE, None)
    assert (whole.chunking, whole.cross_choice) == (Chunking.WHOLE, True)
    assert cut.chunker == ChunkerConfig("german", "dns:///chunkers:8085", "de", 2.0, (None, None, None))
    assert (cut.chunking, hap.chunker) == (Chunking.SENTENCE, None)
    assert parse(b"", "empty") == ()


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ("{kind: text_contents}", "line 2, detectors.a.url: this is missing"),
        ("{kind: other, url: 'http://x'}", "detectors.a.kind"),
        ("{kind: text_contents, url: 'ftp://x'}", "detectors.a.url"),
        ("{kind: text_contents, url: 'http://x', timeout: 0}", "detectors.a.timeout"),
        ("{kind: text_contents, url: 'http://x', colour: red}", "detectors.a.colour: there is no such key"),
        ("{kind: text_contents, url: 'http://x', headers: [a, host]}", "detectors.a.headers[1]: the header host"),
        ("{kind: text_chat, url: 'http://x', chunker: sentence}", "detectors.a.chunker"),
        ("{kind: text_contents, url: 'http://x', chunker: german}", "unknown chunker"),
        ("{kind: text_chat, url: 'http://x', across_choices: true}", "detectors.a.across_choices"),
        (
            "{kind: text_contents, url: 'http://x', chunker: sentence, across_choices: true}",
            "detectors.a.chunker: a detector with across_choices",
        ),
        ("{kind: text_contents, url: 'http://x', tls: {ca: /nowhere}}", "detectors.a.tls"),
        ("{kind: text_contents, url: 'http://x', tls: {key: /nowhere}}", "detectors.a.tls: key needs cert"),
    ],
)
def test_a_wrong_file_is_refused(entry: str, place: str) -> None:
    """An error in the file is reported with file, line and key."""
    with pytest.raises(BadFile) as raised:
        parse(f"detectors:\n  a: {entry}\n".encode(), "d.yaml")
    assert str(raised.value).startswith("d.yaml, line 2")
    assert place in str(raised.value)


@pytest.mark.parametrize("detectors", ["", "detectors:\n  a: {kind: text_contents, url: 'http://x'}\n"])
def test_a_forbidden_header_for_all_detectors_is_refused(detectors: str) -> None:
    """The error names the list at the top of the file, with and without detectors."""
    with pytest.raises(BadFile) as raised:
        parse(f"headers:\n  - x-tenant\n  - Host\n{detectors}".encode(), "d.yaml")
    assert str(raised.value).startswith("d.yaml, line 3, headers[1]: the header host")


def test_the_name_of_a_built_in_detector_is_refused() -> None:
    """The name of a built-in detector is refused."""
    with pytest.raises(BadFile, match="built-in"):
        parse(b"detectors:\n  regex: {kind: text_contents, url: 'http://x'}\n", "d.yaml", {"regex"})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("sentence: {target: 'a:1'}", "built-in"),
        ("b: {target: 'a:1', tls: {ca: /nowhere}}", "certificates"),
        ("b: {target: 'a:1', tls: {key: /nowhere}}", "chunkers.b.tls: key needs cert"),
        ("b: {}", "target: this is missing"),
    ],
)
def test_a_wrong_chunker_is_refused(entry: str, message: str) -> None:
    """An error in the chunkers of the file is reported with file, line and key."""
    with pytest.raises(BadFile, match=message):
        parse(f"chunkers:\n  {entry}\n".encode(), "d.yaml")


def test_a_certificate_of_a_chunker_needs_its_key(tmp_path: Path) -> None:
    """A certificate without its key is refused, because gRPC would end the process.

    The key may be in the file of the certificate.
    """
    issued = trustme.CA().issue_cert("guardrails")
    pem = tmp_path / "tls.pem"
    file = f"""
chunkers:
  german: {{target: "chunkers:8085", tls: {{cert: {pem}}}}}
detectors:
  hap: {{kind: text_contents, url: "http://hap", chunker: german}}
""".encode()
    issued.cert_chain_pems[0].write_to_path(pem)
    with pytest.raises(BadFile, match=r"line 3, chunkers\.german\.tls: cannot load the certificates"):
        parse(file, "d.yaml")
    issued.private_key_and_cert_chain_pem.write_to_path(pem)
    (hap,) = parse(file, "d.yaml")
    assert hap.chunker is not None
    assert hap.chunker.credentials == (None, pem.read_bytes(), pem.read_bytes())

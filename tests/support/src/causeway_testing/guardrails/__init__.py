"""Fakes of detectors, which find a given phrase, and servers of detectors and chunkers for tests."""

from pathlib import Path

from embedding.cache import E5, default_cache_dir, model_directory


def test_the_default_follows_the_xdg_specification() -> None:
    """An absolute XDG_CACHE_HOME is used. If it is missing or relative, ~/.cache is used."""
    assert default_cache_dir({"XDG_CACHE_HOME": "/var/cache"}) == Path("/var/cache/causeway")
    at_home = Path.home() / ".cache" / "causeway"
    assert default_cache_dir({}) == at_home
    assert default_cache_dir({"XDG_CACHE_HOME": "relative"}) == at_home


def test_an_entry_names_what_it_was_built_from() -> None:
    """The name has the weights, the precision and the builder's version, so another build has another directory."""
    names = [
        model_directory(Path("cache"), "int8").name,
        model_directory(Path("cache"), "fp32").name,
        model_directory(Path("cache"), "int8", E5).name,
    ]
    assert names == [
        "all-minilm-l6-v2-53aa51172d14-int8-v1",
        "all-minilm-l6-v2-53aa51172d14-fp32-v1",
        "multilingual-e5-small-1571fc982750-int8-v1",
    ]

"""Abbreviations, in lower case and without their last full stop.

The full stop of an unlisted abbreviation ends a sentence if no lower-case letter follows. So abbreviations that
often end a sentence are not listed: ``etc.``, ``Ltd.``, ``p.m.``.
"""

# fmt: off
# The full stop of these abbreviations never ends a sentence.
INSIDE = frozenset((
    "mr", "mrs", "ms", "dr", "prof", "st", "messrs", "mme", "mlle", "sra", "hr", "fr", "capt", "sgt", "lt", "col",
    "gen", "gov", "rev", "hon", "dept", "cf", "vs", "resp", "incl", "excl", "approx", "e.g", "i.e", "ca", "bzw",
    "z.b", "d.h", "u.a", "evtl", "ggf", "inkl", "zzgl", "ud", "u.s", "u.k", "u.n", "ph.d",
))
# The full stop of these abbreviations does not end a sentence if a number follows: "No. 7", "fig. 3", "Jan. 5".
BEFORE_NUMBERS = frozenset((
    "no", "nos", "nr", "nrs", "pp", "fig", "figs", "eq", "sec", "ch", "vol", "art", "al", "abs", "bd", "str", "tel",
    "ext", "max", "min", "est", "ave", "blvd",
    "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec",
))
# fmt: on

"""detectors.groundedness.statements: the facts of a sentence in all their spellings."""

import pytest
from guardrails.detectors.groundedness.statements import Kind, analyse, names_of, stem


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("They have 1,200 or 1200 or twelve hundred bolts.", [{"1200", "1.2"}, {"1200"}, {"1200"}]),
        ("It takes thirty-five days, not 35.", [{"35"}, {"35"}]),
        ("Two million, 2 million and 2.5 million.", [{"2000000"}, {"2000000"}, {"2500000"}]),
        ("One of them is no number, nor are M8 and [12].", []),
        ("He came 3rd of 40%.", [{"3"}, {"40"}]),
        ("It was 2027-03-05.", [{"2027"}, {"5"}]),
        ("1" * 500, [{"inf"}]),
        ("1.000 and 1,000 and 1000", [{"1000", "1"}, {"1000", "1"}, {"1000"}]),
        ("1,234.56 is 1.234,56 and 1234.56", [{"1234.56"}] * 3),
        ("1,234,567 is 1.234.567; 0.125 is 0,125", [{"1234567"}] * 2 + [{"0.125"}] * 2),
        ("123456.78 is not 123456.79", [{"123456.78"}, {"123456.79"}]),
    ],
)
def test_numbers_in_digits_and_in_words_are_equal(text: str, keys: list[set[str]]) -> None:
    """A number in digits and the same number in words are the same fact. Parts of names and citations are not
    numbers.
    """
    assert [set(fact.keys) for fact in analyse(text).facts if fact.kind is Kind.NUMBER] == keys


def test_an_ambiguous_number_has_the_stem_of_the_number_without_separator() -> None:
    """A number with a separator before three digits has the stem of the number without the separator."""
    assert {analyse(text).facts[0].stem for text in ("1.250 kg", "1,250 kg", "1250 kg")} == {"number:1250"}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("In May you may come on Mondays or 2024-12-24.", ["may", "mon", "dec"]),
        ("The summer of Sept. 1999", ["summer"]),
        ("On 3 Oct the valve was blue.", ["oct"]),
    ],
)
def test_months_weekdays_and_seasons_are_dates(text: str, facts: list[str]) -> None:
    """Months, weekdays and seasons are dates. A verb with the same spelling is not."""
    assert [key for fact in analyse(text).facts if fact.kind is Kind.DATE for key in fact.keys] == facts


def test_capitalised_words_are_names() -> None:
    """Capitalised words are names. The first word of a sentence needs a second sign: a name elsewhere, or a
    following name.
    """
    known = names_of(["We saw Hansen.", "The pump KX-40 is Anna Berg's."])
    assert known == {"hansen", "kx-40", "anna", "berg"}
    names = [fact.text for fact in analyse("Hansen delivers to Karin.", known).facts if fact.kind is Kind.NAME]
    assert names == ["Hansen", "Karin"]
    assert [fact.text for fact in analyse("Visitors meet Karin.", known).facts] == ["Karin"]
    assert [fact.text for fact in analyse("Karin Olsson leads.").facts] == ["Karin", "Olsson"]


def test_all_spellings_of_a_unit_are_equal() -> None:
    """Each spelling of a unit after a number is the same unit."""
    texts = ("5 kg", "5kg", "five kilograms", "5 apples")
    assert [analyse(text).facts[0].unit for text in texts] == ["kilogram", "kilogram", "kilogram", ""]


def test_a_sentence_is_split_into_clauses_and_stems() -> None:
    """Signs and words between statements separate them. All forms of a word have one stem."""
    clauses = analyse("Anna leads sales, and Tom, who is ill, led nothing.").clauses()
    assert [" ".join(token.word for token in clause.tokens) for clause in clauses] == [
        "anna leads sales", "tom", "who is ill", "led nothing",
    ]  # fmt: skip
    assert clauses[3].negations == ["nothing"]
    assert stem("renewed") == stem("renews") == stem("renewal")

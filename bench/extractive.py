"""How often the extractive model's answer holds what was asked for, on the sample corpus.

Each question is put with three sources: the page that answers it and the two other pages that BM25 finds most like
it, in BM25's order. An answer is right if it holds every number and name of the expected one, or, where that has
none, half of its words. Questions about other things, and questions without the right page, show how well it knows
what it does not know.

Usage: python bench/extractive.py [--verbose]
"""

import argparse
import json
import math
import re
import time
from collections import Counter
from pathlib import Path

import pypdfium2  # type: ignore[import-untyped]  # shipped without types
from generator.domain import Source
from generator.extractive.answer import NOT_FOUND, answer
from generator.extractive.terms import terms, words

EXAMPLES = Path(__file__).parent.parent / "examples"
ELSEWHERE = (
    "What is the capital of France?",
    "Who won the football world cup in 1998?",
    "How do I bake sourdough bread?",
    "What is the boiling point of water on Mount Everest?",
    "Explain quantum entanglement.",
    "Who wrote Pride and Prejudice?",
    "How many legs has a spider?",
    "When did the Roman empire fall?",
    "What is the price of a barrel of crude oil?",
    "Wie heißt die Hauptstadt von Frankreich?",
    "Which planet is the largest?",
    "What is the exchange rate of the dollar?",
    "Give me a recipe for tomato soup.",
    "How tall is the Eiffel Tower?",
    "What causes earthquakes?",
)


class Pages:
    """The corpus by pages, and BM25 over them."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        for path in sorted((EXAMPLES / "corpus").iterdir()):
            if path.suffix == ".md":
                self.texts[path.name] = path.read_text(encoding="utf-8")
            else:
                for number, page in enumerate(pypdfium2.PdfDocument(path), start=1):
                    self.texts[f"{path.name}#page={number}"] = page.get_textpage().get_text_range()
        self._terms = {name: Counter(terms(f"{name} {text}")) for name, text in self.texts.items()}
        self._pages = Counter(term for found in self._terms.values() for term in found)
        self._average = sum(found.total() for found in self._terms.values()) / len(self._terms)

    def scores(self, question: str) -> dict[str, float]:
        """BM25 of each page (k1 1.2, b 0.75)."""
        asked = set(terms(question))
        return {
            name: sum(self._weight(term) * self._saturated(found, term) for term in asked)
            for name, found in self._terms.items()
        }

    def sources(self, question: str, right: str | None, count: int = 3) -> list[Source]:
        """The pages that BM25 likes best; the right one is among them, if one is named."""
        scores = self.scores(question)
        names = sorted((name for name in scores if name != right), key=lambda name: -scores[name])
        chosen = names[:count] if right is None else [right, *names[: count - 1]]
        return [
            Source(name, self.texts[name], scores[name]) for name in sorted(chosen, key=lambda name: -scores[name])
        ]

    def _weight(self, term: str) -> float:
        return math.log1p((len(self._terms) - self._pages[term] + 0.5) / (self._pages[term] + 0.5))

    def _saturated(self, found: Counter[str], term: str) -> float:
        length = 0.25 + 0.75 * found.total() / self._average
        return found[term] * 2.2 / (found[term] + 1.2 * length)


def holds(given: str, expected: str, question: str) -> bool:
    """The answer holds the expected one's facts."""
    said, wanted = set(words(given)), words(expected)
    beginnings = set(re.findall(r"(?:^|[.:;] )([A-Z][a-z]+)", expected))
    names = {words(name)[0] for name in set(re.findall(r"[A-Z][a-z]+", expected)) - beginnings}
    facts = {word for word in wanted if word[0].isdigit()} | names
    if facts:
        return facts <= said
    telling = set(terms(expected)) - set(terms(question))
    return not telling or len(telling & said) >= len(telling) / 2


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="Measures the extractive model on the sample corpus.")
    parser.add_argument("--verbose", action="store_true", help="show the questions that are not answered")
    verbose = parser.parse_args().verbose
    pages = Pages()
    lines = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    tally: Counter[str] = Counter()
    seconds = 0.0
    for each in questions:
        question, right = each["question"], each["sourcepage"]
        sources = pages.sources(question, right)
        start = time.process_time()
        given = answer(question, sources)
        seconds += time.process_time() - start
        good = holds(given, each["answer"], question)
        tally["right"] += good
        tally["cites the right page"] += f"[{right}]" in given
        tally["does not know"] += given == NOT_FOUND
        tally["quotes"] += given.count(" [")
        without = [source for source in pages.sources(question, None, 4) if source.name != right][:3]
        tally["does not know without the page"] += answer(question, without) == NOT_FOUND
        if verbose and not good:
            print(f"{question}\n  expected: {each['answer']}\n  given:    {given}")
    count = len(questions)
    for name in ("right", "cites the right page", "does not know", "does not know without the page"):
        print(f"{name:32} {tally[name]:4} of {count}  {tally[name] / count:4.0%}")
    known = sum(answer(question, pages.sources(question, None)) == NOT_FOUND for question in ELSEWHERE)
    print(f"{'does not know of other things':32} {known:4} of {len(ELSEWHERE)}")
    print(f"{tally['quotes'] / count:.1f} passages and {seconds / count * 1000:.1f} ms an answer")


if __name__ == "__main__":
    main()

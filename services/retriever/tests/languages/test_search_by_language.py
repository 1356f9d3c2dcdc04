"""Text search in ten languages, in indexes of one language and of several."""
# ruff: noqa: RUF001  # letters of other scripts

from typing import Any

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.checks import wait_until_ended
from retriever.domain.document import Document
from retriever.domain.index import IndexSettings, IndexSpec
from retriever.domain.language import LEGACY
from retriever.domain.query import Mode
from retriever.indexes.rebuild_jobs import RebuildState
from servicekit.principal import LOCAL

NOTHING = IndexSettings()


@pytest.fixture(params=["edge", "qdrant"])
def kind(request: pytest.FixtureRequest) -> str:
    """Parametrize the tests with both stores, which count words in different ways."""
    name: str = request.param
    return name


TEXTS: dict[str, list[str]] = {
    "en": [
        "The houses along the river were rebuilt after the flood, each with a cellar that pumps itself dry.",
        "Season tickets for the ferry are sold at the kiosk beside the church until the end of May.",
        "A guest who borrows a bicycle returns it to the same station before midnight.",
    ],
    "de": [
        "Die Häuser am Fluss wurden nach dem Hochwasser wieder aufgebaut, jedes mit einem trockenen Keller.",
        "Dauerkarten für die Fähre verkauft der Kiosk neben der Kirche bis Ende Mai.",
        "Wer ein Fahrrad ausleiht, bringt es vor Mitternacht an dieselbe Station zurück.",
    ],
    "fr": [
        "Les maisons au bord de la rivière ont été reconstruites après la crue, chacune avec une cave sèche.",
        "Les abonnements pour le bac sont vendus au kiosque près de l'église jusqu'à la fin de mai.",
        "Celui qui emprunte un vélo le rend à la même station avant minuit.",
    ],
    "es": [
        "Las casas junto al río fueron reconstruidas después de la inundación, cada una con un sótano seco.",
        "Los abonos para el transbordador se venden en el quiosco junto a la iglesia hasta finales de mayo.",
        "Quien toma prestada una bicicleta la devuelve en la misma estación antes de medianoche.",
    ],
    "ru": [
        "Дома вдоль реки были восстановлены после наводнения, у каждого сухой подвал.",
        "Абонементы на паром продаются в киоске возле церкви до конца мая.",
        "Кто берёт велосипед напрокат, возвращает его на ту же станцию до полуночи.",
    ],
    "ar": [
        "أعيد بناء البيوت على ضفة النهر بعد الفيضان، ولكل بيت قبو جاف.",
        "تباع اشتراكات العبارة في الكشك بجانب الكنيسة حتى نهاية مايو.",
        "من يستعير دراجة يعيدها إلى المحطة نفسها قبل منتصف الليل.",
    ],
    "zh": [
        "洪水过后，河边的房屋全部重建，每栋都有干燥的地下室。",
        "渡轮季票在教堂旁边的售货亭出售，直到五月底。",
        "借用自行车的人必须在午夜之前把车还到同一个车站。",
    ],
    "ja": [
        "洪水の後、川沿いの家はすべて建て直され、それぞれに乾いた地下室があります。",
        "フェリーの定期券は、五月末まで教会の隣の売店で販売されています。",
        "自転車を借りた人は、真夜中までに同じ駅に返却してください。",
    ],
    "th": [
        "บ้านริมแม่น้ำถูกสร้างขึ้นใหม่หลังน้ำท่วม แต่ละหลังมีห้องใต้ดินที่แห้ง",
        "ตั๋วเรือข้ามฟากรายฤดูขายที่ร้านค้าข้างโบสถ์จนถึงสิ้นเดือนพฤษภาคม",
        "ผู้ที่ยืมจักรยานต้องคืนที่สถานีเดิมก่อนเที่ยงคืน",
    ],
    "ko": [
        "홍수가 지나간 뒤 강가의 집들은 모두 다시 지어졌고 집마다 마른 지하실이 있다.",
        "여객선 정기권은 오월 말까지 교회 옆 매점에서 판매한다.",
        "자전거를 빌린 사람은 자정 전에 같은 정류장에 반납해야 한다.",
    ],
}
"""Three documents in each language: houses by the river, season tickets of the ferry, bicycles."""

QUERIES: dict[str, list[str]] = {
    "en": ["house", "ferry ticket", "borrowing a bicycle"],
    "de": ["Haus", "Dauerkarte", "Fahrräder"],
    "fr": ["maison", "kiosques", "emprunts"],
    "es": ["casa", "abono", "bicicletas"],
    "ru": ["дом у реки", "абонемент", "велосипеды"],
    "ar": ["البيت", "كنيسة", "الدراجة"],
    "zh": ["房屋", "渡轮季票", "自行车"],
    "ja": ["川沿いの家", "定期券", "返却"],
    "th": ["ห้องใต้ดิน", "โบสถ์", "จักรยาน"],
    "ko": ["지하실", "정기권", "자전거"],
}
"""Queries for the three documents. The words have another form than in the text if the language has several."""


async def fill(bench: Bench, *languages: str, index: str = INDEX) -> None:
    for language in languages:
        for number, text in enumerate(TEXTS[language]):
            await bench.put(Document(f"{language}-{number}", generation=1), [text], index)


async def found(bench: Bench, query: str, index: str = INDEX, **more: Any) -> list[str]:
    """Return the ids of the documents that text search finds, best first."""
    passages = await bench.ask(query, mode=Mode.TEXT, indexes=(index,), **more)
    return [passage.document.document_id for passage in passages]


@pytest.mark.parametrize("language", TEXTS)
async def test_an_index_of_one_language(bench: Bench, language: str) -> None:
    """The service detects the language of the documents. Each query finds its document first, also by other forms
    of its words.
    """
    await fill(bench, language)
    index = await bench.indexes.get(LOCAL.tenant, INDEX)
    assert set(await index.languages()) == {language}
    assert [(await found(bench, query))[:1] for query in QUERIES[language]] == [
        [f"{language}-{number}"] for number in range(3)
    ]


async def test_an_index_of_all_languages(bench: Bench) -> None:
    """A query finds the document in its own language first."""
    await fill(bench, *TEXTS)
    best = {language: [(await found(bench, query))[:1] for query in QUERIES[language]] for language in TEXTS}
    assert best == {language: [[f"{language}-{number}"] for number in range(3)] for language in TEXTS}


async def test_the_language_of_an_index(bench: Bench) -> None:
    """Documents have the declared language of their index unless their script is another one. A query is analysed
    in both languages.
    """
    await bench.rebuilds().create(LOCAL, "german", "", NOTHING, "de")
    await fill(bench, "de", "ru", index="german")
    await bench.put(Document("short", generation=1), ["Häuser"], "german")
    index = await bench.indexes.get(LOCAL.tenant, "german")
    assert set(await index.languages()) == {"de", "ru"}
    assert set(await found(bench, "Haus", "german")) == {"de-0", "short"}
    assert await found(bench, "абонемент", "german") == ["ru-1"]


async def test_short_texts(bench: Bench) -> None:
    """A text that is too short for detection has its declared language, or else that of the other documents."""
    await fill(bench, "de")
    await bench.put(Document("unnamed", generation=1), ["Hotel"])
    await bench.put(Document("named", language="fr-CA", generation=1), ["Hotel"])
    index = await bench.indexes.get(LOCAL.tenant, INDEX)
    records = await index.collection.records(["unnamed", "named"])
    assert {record.document_id: record.text_language for record in records.values()} == {
        "unnamed": "de",
        "named": "fr",
    }


async def test_an_index_of_an_earlier_version(bench: Bench) -> None:
    """An index of an earlier version analyses words as English until a rebuild, which finds the words of other
    languages.
    """
    await bench.indexes.create(IndexSpec(LOCAL.tenant, INDEX, bench.embedder.model, bench.embedder.dimension))
    await fill(bench, "de", "zh")
    assert (await bench.catalogue.index(LOCAL, INDEX)).language == LEGACY
    assert (await found(bench, "Haus"), await found(bench, "自行车")) == ([], [])
    assert await found(bench, "Häuser") == ["de-0"]
    rebuilds = bench.rebuilds()
    begun = await rebuilds.begin(LOCAL, INDEX, "", NOTHING)
    assert begun.language == "auto"
    assert (await wait_until_ended(rebuilds)).state is RebuildState.SUCCEEDED
    assert (await bench.catalogue.index(LOCAL, INDEX)).language == "auto"
    assert (await found(bench, "Haus"), await found(bench, "自行车")) == (["de-0"], ["zh-2"])
    await rebuilds.begin(LOCAL, INDEX, "", NOTHING, "fr")
    assert (await wait_until_ended(rebuilds)).language == "fr"
    assert await found(bench, "Haus") == []
    await rebuilds.aclose()


async def test_unsegmented_text_does_not_expand_a_query(bench: Bench) -> None:
    """A query is not expanded with text that has no word boundaries for the English rules of an old index."""
    await bench.indexes.create(IndexSpec(LOCAL.tenant, INDEX, bench.embedder.model, bench.embedder.dimension))
    pages = [f"渡轮 {text}" for text in (*TEXTS["zh"], *TEXTS["ja"]) for _ in range(4)]
    await bench.put(Document("pages", generation=1), pages)
    plain = await bench.ask("渡轮", expand=False, top=20)
    assert await bench.ask("渡轮", expand=True, top=20) == plain


async def test_indexes_of_several_languages_are_searched_together(bench: Bench) -> None:
    """In a search of several indexes, the query is analysed in the language of each index."""
    await fill(bench, "de", index="german")
    await fill(bench, "en", index="english")
    names = ("german", "english")
    for query, best in (("Haus", "de-0"), ("house", "en-0")):
        passages = await bench.ask(query, mode=Mode.TEXT, indexes=names, captions=True)
        assert [(passage.document.document_id, bool(passage.captions)) for passage in passages] == [(best, True)]

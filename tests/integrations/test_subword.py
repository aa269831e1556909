"""Subword tables: like for like, nothing special, and the same table from the cache."""

from functools import partial

import pytest
import torch
from tests.integrations.tiny import gpt2, t5
from tests.surroundings import default_dtype, unchecked
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.nn import DataParallel
from transformers import ByT5Tokenizer, CLIPTokenizer, PreTrainedTokenizerFast

import nnrs
from nnrs.errors import ConfigError
from nnrs.neighbors.subword import Piece, _byte_of, pieces_of, report

WORDS = [
    " market",
    " stock",
    " trade",
    " Market",
    " Stock",
    "market",
    "stock",
    "NATO",
    "USA",
    " рынок",
    " цена",
]
OTHERS = [" 1990", "4th", "\n", ".", "!", "市", "场"]


def byte_level(extra=()):
    """A tokenizer of GPT-2's kind with these words, one entry that is half a character, and special tokens."""
    letter = {byte: character for character, byte in _byte_of().items()}
    entries = ["".join(letter[byte] for byte in word.encode()) for word in [*WORDS, *OTHERS]]
    entries.append(letter["é".encode()[0]])
    return fast(entries, extra)


def sentence_piece():
    return fast([word.replace(" ", "▁") for word in [*WORDS, *OTHERS]] + ["<0x0A>"])


def fast(entries, extra=()):
    vocabulary = {entry: number for number, entry in enumerate([*entries, "<unk>"])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<eos>")
    tokenizer.add_tokens(list(extra))
    return tokenizer


def word_ends():
    """A tokenizer of GPT-1's kind, with words of two letters and what they are merged from."""
    merges = [
        ("n", "o"),
        ("s", "o"),
        ("n", "o</w>"),
        ("s", "o</w>"),
        ("U", "S</w>"),
        ("E", "U</w>"),
        ("市", "场</w>"),
    ]
    entries = [first + second for first, second in merges]
    entries += ["ï</w>", "1990</w>", "</w>", "<unk>", *sorted({part for pair in merges for part in pair})]
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", end_of_word_suffix="</w>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Whitespace(), decoders.BPEDecoder("</w>")
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def neighbors_of(table, number):
    return {other for other, _, _ in table.row(number, 1.0)}


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
def test_pieces_are_read_back_with_their_leading_space(make):
    pieces = pieces_of(make())
    assert [piece.text for piece in pieces[: len(WORDS)]] == WORDS
    assert [piece.at_edge for piece in pieces[: len(WORDS)]] == [word.startswith(" ") for word in WORDS]


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
def test_special_added_byte_digit_and_blank_tokens_are_protected(make):
    pieces = pieces_of(make())
    protected = {piece.text: piece.protection for piece in pieces if piece.protection}
    half = "<0x0A>" if make is sentence_piece else "Ã"
    assert protected == {
        " 1990": "digit",
        "4th": "digit",
        "\n": "blank",
        half: "byte",
        "<unk>": "special",
        "<eos>": "special",
    }
    assert pieces_of(byte_level(extra=["brandnew"]))[-1] == Piece("brandnew", False, "special")


def test_a_word_piece_vocabulary_marks_what_continues_a_word():
    pieces = pieces_of(fast(["market", "##s", "1990"]))
    assert [(piece.text, piece.at_edge, piece.protection) for piece in pieces[:3]] == [
        ("market", True, ""),
        ("s", False, ""),
        ("1990", True, "digit"),
    ]


def test_a_vocabulary_that_marks_where_words_end_is_read_without_its_marks():
    pieces = pieces_of(word_ends())
    assert [(piece.text, *piece.kind) for piece in pieces[:8]] == [
        ("no", False, "lower", "LATIN"),
        ("so", False, "lower", "LATIN"),
        ("no ", True, "lower", "LATIN"),
        ("so ", True, "lower", "LATIN"),
        ("US ", True, "upper", "LATIN"),
        ("EU ", True, "upper", "LATIN"),
        ("市场 ", True, "", "CJK"),
        ("ï ", True, "lower", "LATIN"),
    ]
    assert [piece.protection for piece in pieces[8:11]] == ["digit", "blank", "special"]


def test_words_are_neither_glued_together_nor_torn_apart_where_their_ends_are_marked():
    tokenizer = word_ends()
    ids = tokenizer("US noso no EU").input_ids
    assert ids == [4, 0, 3, 2, 5]  # US</w> no so</w> no</w> EU</w>
    table = nnrs.NeighborTable.from_vectors(torch.randn(len(tokenizer), 6), tokenizer, k=4)
    assert neighbors_of(table, 4) == {5}
    for slot in range(4):
        words = tokenizer.decode(table.ids[ids, slot].tolist()).split()
        assert len(words) == 4
        assert [word.isupper() for word in words] == [True, False, False, True]


def test_a_vocabulary_of_clips_kind_marks_word_ends_behind_bytes():
    letters = list(_byte_of())  # é is Ã© there, in bytes; a half of it, alone, is no text
    entries = [*letters, *[f"{letter}</w>" for letter in letters], "cafÃ©</w>", "caf"]
    pieces = pieces_of(CLIPTokenizer({entry: number for number, entry in enumerate(entries)}, []))
    assert pieces[512:514] == [Piece("café ", True), Piece("caf", False)]
    half = letters.index("Ã")
    assert [pieces[half].protection, pieces[256 + half].protection] == ["byte", "byte"]
    assert pieces[256 + letters.index("a")] == Piece("a ", True)


def test_a_vocabulary_that_marks_what_goes_on_is_read_like_one_that_marks_what_ends():
    pieces = pieces_of(fast(["mark@@", "et", "market", "USA@@", "@@@", "@@", "4@@"]))
    assert pieces[:7] == [
        Piece("mark", False),
        Piece("et", True),
        Piece("market", True),
        Piece("USA", False),
        Piece("@", False),
        Piece("", False, "blank"),
        Piece("4", False, "digit"),
    ]


def test_in_a_vocabulary_of_single_bytes_only_printable_ascii_is_text():
    pieces = pieces_of(ByT5Tokenizer(extra_ids=2))[3:]  # behind <pad>, </s> and <unk>
    why = [piece.protection for piece in pieces]
    assert why[:32] == ["byte"] * 32  # control characters
    assert why[ord(" ")] == "blank"
    assert why[ord("0") : ord("9") + 1] == ["digit"] * 10
    assert [piece.text for piece in pieces if not piece.protection] == [
        *map(chr, (*range(33, 48), *range(58, 127)))
    ]
    assert why[127:] == ["byte"] * 129 + ["special"] * 2


def test_a_vocabulary_of_letters_is_read_as_letters():
    assert [piece.protection for piece in pieces_of(fast(["a", "é", "ß", "~"]))[:4]] == [""] * 4


def test_special_tokens_do_not_say_how_a_vocabulary_is_read():
    tokenizer = fast(["market", "stock"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["</w>", "<a></w>", "<b></w>"]})
    assert pieces_of(tokenizer)[:2] == [Piece("market", True), Piece("stock", True)]


@pytest.mark.parametrize(
    ("entries", "texts", "edges"),
    [
        (["▁the", "▁market", "ing", "é", "Ġ", "##"], [" the", " market", "ing", "é", "Ġ", "##"], [0, 1]),
        (["market", "##s", "##ing", "é", "Ġ", "▁"], ["market", "s", "ing", "é", "Ġ", "▁"], [0, 3, 4, 5]),
        (
            ["Ġthe", "Ġmarket", "Ġa", "Ã©", "##", "####", "▁"],
            [" the", " market", " a", "é", "##", "####", "▁"],
            [0, 1, 2],
        ),
        (
            ["the</w>", "market</w>", "ing", "é", "Ġ", "##", "@@", "▁a"],
            ["the ", "market ", "ing", "é", "Ġ", "##", "@@", "▁a"],
            [0, 1],
        ),
        (
            ["the@@", "market@@", "ing", "é", "Ġ", "##", "a</w>"],
            ["the", "market", "ing", "é", "Ġ", "##", "a</w>"],
            [2, 3, 4, 5, 6],
        ),
        (
            ["Ġthe", "Ġmarket", "Ġa", "@@", "@@@@", "</w>"],
            [" the", " market", " a", "@@", "@@@@", "</w>"],
            [0, 1, 2],
        ),
    ],
    ids=["SentencePiece", "WordPiece", "byte-level", "word ends", "what goes on", "byte-level with ends"],
)
def test_a_few_entries_with_anothers_mark_do_not_change_how_a_vocabulary_is_read(entries, texts, edges):
    pieces = pieces_of(fast(entries))[: len(entries)]
    assert [piece.text for piece in pieces] == texts
    assert [number for number, piece in enumerate(pieces) if piece.at_edge] == edges


def test_digits_of_any_script_are_protected_and_words_for_numbers_are_not():
    digits, words = ["7", "²", "½", "٣", "4th"], ["一起", "万", "十分", "二〇", "market"]
    protected = [piece.protection for piece in pieces_of(fast([*digits, *words]))]
    assert protected[:10] == [*["digit"] * 5, *[""] * 5]


def test_neighbors_share_leading_space_case_and_script_and_every_peer_is_found():
    tokenizer = byte_level()
    table = nnrs.NeighborTable.from_vectors(torch.randn(len(tokenizer), 6), tokenizer=tokenizer, k=5)
    peers = [{0, 1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {14, 15}, {16, 17}]  # WORDS, then . ! and 市 场
    for group in peers:
        assert all(neighbors_of(table, number) == group - {number} for number in group)
    alone = set(range(len(tokenizer))) - set().union(*peers)
    assert not table.replaceable[list(alone)].any()


def padded(model, tokenizer):
    """The model with the tokenizer's rows, and three more."""
    model.resize_token_embeddings(len(tokenizer) + 3)
    return model


def test_neighbors_are_the_nearest_once_the_mean_is_taken_off():
    tokenizer = fast([f" w{letter}" for letter in "abcdefghijkl"])  # plain words: all of one kind
    model = padded(gpt2(), tokenizer)
    weights = model.get_input_embeddings().weight
    weights.data += 5.0  # a common offset, which plain cosine would take for likeness
    table = nnrs.NeighborTable.from_model(model, tokenizer, k=3)
    rows = weights.detach()[:12]
    rows = rows - rows.mean(0)
    cosines = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1).fill_diagonal_(-2)
    assert torch.equal(table.ids[:12], cosines.topk(3).indices)
    torch.testing.assert_close(table.similarities[:12], cosines.topk(3).values)
    assert not table.replaceable[12:].any()  # <unk>, <eos>, and rows that the tokenizer has no token for


def test_a_table_is_made_from_the_decoders_embeddings_and_only_reads_them():
    tokenizer = byte_level()
    model = padded(t5(), tokenizer)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    table = nnrs.NeighborTable.from_model(model, tokenizer, k=2, protected=[0])
    assert table.vocab_size == len(tokenizer) + 3
    assert neighbors_of(table, 1) == {2}
    assert not table.replaceable[0]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_dtype_changes_no_table_of_a_model(dtype):
    tokenizer = byte_level()
    model = padded(gpt2(), tokenizer)
    expected = nnrs.NeighborTable.from_model(model, tokenizer, k=2)
    with default_dtype(dtype):
        found = nnrs.NeighborTable.from_model(model, tokenizer, k=2)
    assert torch.equal(found.ids, expected.ids)
    assert torch.equal(found.similarities, expected.similarities)


compiled = partial(torch.compile, backend="eager")


@pytest.mark.parametrize(
    "wrap",
    [
        DataParallel,  # holds the model as DistributedDataParallel does, and needs no group
        compiled,
        lambda model: compiled(DataParallel(model)),
        lambda model: DataParallel(compiled(model)),
    ],
    ids=["parallel", "compiled", "parallel, then compiled", "compiled, then parallel"],
)
@pytest.mark.parametrize("make", [gpt2, t5])
def test_the_table_of_a_wrapped_model_is_that_of_the_model_inside(make, wrap):
    tokenizer = byte_level()
    model = padded(make(), tokenizer)
    table, wrapped = (nnrs.NeighborTable.from_model(each, tokenizer, k=2) for each in (model, wrap(model)))
    assert table.replaceable.any()
    assert torch.equal(wrapped.ids, table.ids)


def test_word_vectors_from_a_file_serve_the_pieces_that_end_a_word_where_that_is_marked(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("no 1 0\nso 0.9 0.1\nUS 1 1\nEU 1 1\n")
    table = nnrs.NeighborTable.from_vectors(str(path), word_ends(), k=1)
    assert [neighbors_of(table, number) for number in (2, 3, 4, 5)] == [{3}, {2}, {5}, {4}]
    assert not table.replaceable[:2].any()  # `no` and `so` without the mark go on


def test_word_vectors_from_a_file_serve_the_pieces_that_begin_a_word(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("market 1 0\nstock 0.9 0.1\ntrade 0 1\nNATO 1 1\nUSA 1 1\n")
    table = nnrs.NeighborTable.from_vectors(str(path), byte_level(), k=1)
    assert [neighbors_of(table, number) for number in (0, 1, 2)] == [{1}, {0}, {1}]
    assert neighbors_of(table, 3) == {4}  # ` Market` and ` Stock`, by their lower case
    assert not table.replaceable[5:9].any()  # `market`, `stock`, `NATO` and `USA` go on with a word


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [21, 2_000], ids=["made", "from the cache"])
def test_a_table_is_where_its_vectors_are(rows, tmp_path, monkeypatch):
    monkeypatch.setenv("NNRS_CACHE", str(tmp_path))
    vectors, tokenizer = torch.randn(rows, 4, device="cuda"), byte_level()
    for _ in range(2):
        assert nnrs.NeighborTable.from_vectors(vectors, tokenizer, k=2).ids.is_cuda
    assert not nnrs.NeighborTable.from_vectors(vectors.cpu(), tokenizer, k=2, device="cuda").ids.is_cuda


def test_a_large_table_is_kept_by_its_weights_and_tokens(tmp_path, monkeypatch):
    monkeypatch.setenv("NNRS_CACHE", str(tmp_path))
    tokenizer, vectors = byte_level(), torch.randn(2_000, 4)
    first, second = (nnrs.NeighborTable.from_vectors(vectors, tokenizer=tokenizer, k=2) for _ in range(2))
    assert len(list(tmp_path.iterdir())) == 1
    assert torch.equal(first.ids, second.ids)
    nnrs.NeighborTable.from_vectors(vectors + 1, tokenizer=tokenizer, k=2)
    nnrs.NeighborTable.from_vectors(vectors, tokenizer=byte_level(extra=["new"]), k=2)
    nnrs.NeighborTable.from_vectors(vectors, tokenizer=tokenizer, k=3)
    assert len(list(tmp_path.iterdir())) == 3  # a token that is added, and protected, changes no row


def test_the_report_counts_what_is_covered_and_names_the_hubs():
    tokenizer = byte_level()
    vectors = torch.zeros(len(tokenizer), 2)
    vectors[:3] = torch.tensor([[1.0, 0.1], [1.0, 0.0], [1.0, -0.1]])
    found = report(nnrs.NeighborTable.from_vectors(vectors, tokenizer=tokenizer, k=1), tokenizer)
    assert (found.tokens, found.covered) == (21, 3)
    assert found.hubs[0] == (" stock", 2)
    assert str(found).startswith(
        "neighbors for 3 of 21 tokens (14.3%); protected: 1 blank, 1 byte, 2 digit, 2 special; "
        "without a vector or a peer: 12; hubs: ' stock' in 2 rows"
    )


def with_holes():
    """Words at the ids 0, 1, 5 and 9, and special tokens at 3 and 4: four holes among ten ids."""
    vocabulary = {"market": 0, "stock": 1, "<unk>": 3, "<eos>": 4, "trade": 5, "price": 9}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<eos>")


def test_ids_behind_holes_have_neighbors_and_holes_have_none():
    tokenizer = with_holes()
    assert len(tokenizer) == 6
    table = nnrs.NeighborTable.from_vectors(torch.randn(12, 3), tokenizer, k=3)
    assert [neighbors_of(table, number) for number in (0, 9)] == [{1, 5, 9}, {0, 1, 5}]
    assert table.replaceable.nonzero()[:, 0].tolist() == [0, 1, 5, 9]


def test_the_report_counts_holes_apart_from_tokens():
    tokenizer = with_holes()
    found = report(nnrs.NeighborTable.from_vectors(torch.randn(10, 3), tokenizer, k=3), tokenizer)
    assert (found.tokens, found.covered, found.protected, found.holes) == (6, 4, {"special": 2}, 4)
    assert "without a vector or a peer: 0; ids without a token: 4; hubs" in str(found)


def test_who_has_a_list_of_words_is_told_how_to_read_their_vectors(tmp_path):
    path, words = tmp_path / "vectors.txt", ["<pad>", "cat", "dog", "bond"]
    path.write_text("bond 1 0\ncat 0 1\ndog 0.1 1\n")
    for given in ((path, words), (path,)):
        advice = r"list of words.* from_vectors\(nnrs\.read_vectors\(path, words\)\.vectors"
        with unchecked(), pytest.raises(ConfigError, match=advice):
            nnrs.NeighborTable.from_vectors(*given, k=1)
    table = nnrs.NeighborTable.from_vectors(nnrs.read_vectors(path, words).vectors, k=1)
    assert table.ids.tolist() == [[0], [2], [1], [2]]  # of <pad>, which has no vector, itself


def test_holes_count_towards_the_vectors_that_are_needed():
    with pytest.raises(ConfigError, match=r"ids go up to 9, .*resize_token_embeddings\(10\)"):
        nnrs.NeighborTable.from_vectors(torch.randn(9, 3), with_holes())


def test_what_has_no_table_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"ids go up to 20, but there are 20 vectors\. Call model\.resize_token_embeddings\(21\)",
    ):
        nnrs.NeighborTable.from_vectors(torch.randn(20, 2), tokenizer=byte_level())
    with pytest.raises(ConfigError, match=r"from_vectors\(path, tokenizer"):
        nnrs.NeighborTable.from_vectors("vectors.txt")
    for model in (torch.nn.Linear(2, 2), DataParallel(torch.nn.Linear(2, 2))):
        advice = rf"{type(model).__name__} has no get_input_embeddings.*from_vectors\(weights, tokenizer"
        with pytest.raises(ConfigError, match=advice):
            nnrs.NeighborTable.from_model(model, byte_level())
    quantised = gpt2()
    quantised.get_input_embeddings().weight = torch.nn.Parameter(
        torch.zeros(61, 16, dtype=torch.int8), requires_grad=False
    )
    with pytest.raises(ConfigError, match="quantised"):
        nnrs.NeighborTable.from_model(quantised, byte_level())
    with pytest.raises(ConfigError, match=r"^the input embeddings must be .* got one on the meta device"):
        nnrs.NeighborTable.from_model(gpt2().to("meta"), byte_level())


@pytest.mark.parametrize(
    "tokenizer", [None, "gpt2", Tokenizer(models.WordLevel({"a": 0}))], ids=lambda value: type(value).__name__
)
def test_what_is_no_tokenizer_of_transformers_is_refused(tokenizer):
    message = rf"got {type(tokenizer).__name__}\. .*PreTrainedTokenizerFast\(tokenizer_object=tokenizer\)"
    with unchecked(), pytest.raises(ConfigError, match=message):
        nnrs.NeighborTable.from_model(gpt2(), tokenizer)


def test_a_tokenizer_far_smaller_than_the_models_embeddings_is_refused():
    tokenizer, model = byte_level(), gpt2()  # 21 and 61
    message = r"tokenizer has 21 ids, but the model embeds 61, .*resize_token_embeddings\(21\)"
    with pytest.raises(ConfigError, match=message):
        nnrs.NeighborTable.from_model(model, tokenizer, k=2)
    model.resize_token_embeddings(21)
    assert nnrs.NeighborTable.from_model(model, tokenizer, k=2).vocab_size == 21
    model.resize_token_embeddings(20)
    with pytest.raises(ConfigError, match=r"the tokenizer's ids go up to 20, but there are 20 vectors"):
        nnrs.NeighborTable.from_model(model, tokenizer, k=2)


@pytest.mark.parametrize("value", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embeddings_that_are_all_equal_are_refused(value, dtype):
    tokenizer = byte_level()
    model = padded(gpt2(), tokenizer).to(dtype)
    torch.nn.init.constant_(model.get_input_embeddings().weight, value)
    with pytest.raises(ConfigError, match="the input embeddings are all equal"):
        nnrs.NeighborTable.from_model(model, tokenizer, k=2)


def test_pieces_at_the_mean_have_no_neighbors_and_leave_fewer_to_their_peers():
    tokenizer = fast(list("abcdef"))
    model = padded(gpt2(), tokenizer)
    weights = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    with torch.no_grad():
        model.get_input_embeddings().weight[:, :2] = 2.0  # a mean that is exact
        model.get_input_embeddings().weight[:, 2:] = 0.0
        model.get_input_embeddings().weight[:6, :2] += weights
    table = nnrs.NeighborTable.from_model(model, tokenizer, k=4)
    assert [neighbors_of(table, number) for number in range(6)] == [
        set(),
        set(),
        set(),
        {4, 5},
        {3, 5},
        {3, 4},
    ]


def test_characters_stand_for_bytes_as_in_gpt2s_vocabulary():
    assert _byte_of()["Ġ"] == 0x20
    assert _byte_of()["Ċ"] == 0x0A
    assert sorted(_byte_of().values()) == list(range(256))

import torch

from nnrs.embeddings import Coverage, Embeddings


def test_coverage_counts_types_and_tokens_and_names_the_most_frequent_missing_words():
    vectors = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, -2.0], [0.0, 0.0]])
    coverage = Embeddings(vectors, "test").coverage(["the", "<unk>", "cat", "of"], [50, 7, 3, 40])
    assert coverage == Coverage(
        types=4, types_covered=2, tokens=100, tokens_covered=53, missing=("of", "<unk>")
    )


def test_marks_are_never_covered_whatever_vectors_they_have():
    coverage = Embeddings(torch.ones(4, 2), "corpus").coverage(
        ["<eos>", "the", "<unk>", "cat"], [30, 50, 15, 5]
    )
    assert coverage == Coverage(
        types=4, types_covered=2, tokens=100, tokens_covered=55, missing=("<eos>", "<unk>")
    )
    assert str(coverage) == (
        "vectors cover 2 of 4 words (50.0%) and 55.0% of tokens; most frequent of the rest: <eos> <unk>"
    )


def test_at_most_ten_missing_words_are_named():
    words = [f"w{i:02}" for i in range(12)]
    coverage = Embeddings(torch.zeros(12, 1), "test").coverage(words, list(range(12)))
    assert coverage.missing == tuple(f"w{i:02}" for i in range(11, 1, -1))


def test_of_vectors_that_few_words_have_it_is_asked_whether_they_are_of_the_text():
    few, enough = (
        str(Embeddings(torch.tensor([[1.0], [0.0]]), "test").coverage(["le", "the"], counts))
        for counts in ([29, 71], [30, 70])
    )
    told = ". That is little: are vectors and text of one language and spelling?"
    assert (
        few == f"vectors cover 1 of 2 words (50.0%) and 29.0% of tokens; most frequent of the rest: the{told}"
    )
    assert enough.endswith("30.0% of tokens; most frequent of the rest: the")

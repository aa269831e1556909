"""Numbers with their nouns, for whatever is printed."""


def counted(number: int, noun: str) -> str:
    """The number and its noun, which has an s unless there is one of it.

    >>> counted(1, "run"), counted(2_000, "run"), counted(0, "run")
    ('1 run', '2,000 runs', '0 runs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

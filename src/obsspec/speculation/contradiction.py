"""Whether a predicted observation can still be right, once it is known how the real one begins."""

from __future__ import annotations


def contradicts(predicted: str, beginning: str) -> bool:
    """No observation that begins like this can be the predicted one, however texts become tokens.

    Predicted and real observations are equal when their tokens are, and a tokenizer may normalise, a template may trim.
    So space around the texts does not count, and a difference only where both have an ASCII character: Unicode
    normalisation joins a character with marks that follow it, but makes no two different ones of these equal.
    """
    said, real = predicted.strip(), beginning.lstrip()
    both = min(len(said), len(real))
    same = both if said[:both] == real[:both] else next(i for i in range(both) if said[i] != real[i])
    if same == len(said):
        return real[same:].lstrip()[:1].isascii() and real[same:].strip() != ""
    return same < len(real) and said[same].isascii() and real[same].isascii()

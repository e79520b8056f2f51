"""Read whole numbers from text that clients and other programs wrote."""

__all__ = ("number_in",)


def number_in(text: str, digits: int = 18) -> int | None:
    """Return the number that a text of ASCII digits is; None if the text is anything else.

    `int` refuses more than 4,300 digits with a plain ValueError, takes quadratic time for fewer, and also reads digits
    of other scripts, spaces, signs and underscores. So check the text before, with this function or with a pattern.

    Args:
        text: the text.
        digits: maximum number of digits. A stream id has at most 18.
    """
    is_number = len(text) <= digits and text.isascii() and text.isdecimal()  # an empty text is not decimal
    return int(text) if is_number else None

"""Text of strangers, made safe to look at: shown in a page it must not act on the reader or hide what it says."""

_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}  # an escape is shown as its sign
_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_UNSAFE = _PICTURES | {0x7F: 0x2421} | dict.fromkeys([*range(0x80, 0xA0), *_DIRECTIONS], 0xFFFD)


def visible(text: str) -> str:
    """Replace control characters by their pictures, and those that turn the reading direction by ``\ufffd``.

    Letters that are written from right to left stay as they are; tabs and line ends too.
    """
    return text.replace("\r\n", "\n").translate(_UNSAFE)

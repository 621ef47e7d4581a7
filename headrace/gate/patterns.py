"""A contract's pattern as Java must spell it to mean what it means in JSON Schema."""

from __future__ import annotations

LINE_ENDS = r"\n\r\u2028\u2029"


def java_pattern(pattern: str) -> str:
    """`$` is the very end (Java: or before a last line break), `.` stops only at ECMAScript's line ends."""
    spelled, in_set, escaped = [], False, False
    for char in pattern:
        outside = not in_set and not escaped
        if outside and char == "$":
            spelled.append(r"\z")
        elif outside and char == ".":
            spelled.append(f"[^{LINE_ENDS}]")
        else:
            spelled.append(char)
        if not escaped and char in "[]":
            in_set = char == "["
        escaped = char == "\\" and not escaped
    return "".join(spelled)

"""Text of models, environments and users, made safe to show: invisible characters and terminal codes become visible
marks.

Every text that a terminal shows goes through `visible`: the consoles of the commands, the lines of the logs, messages
of errors.
"""

import logging
import unicodedata
from typing import Any

KEPT = {"\n", "\t", "\u200c", "\u200d"}  # joiners: several scripts and emoji can't be written without them


def mark(character: str) -> str:
    """Make the visible stand-in of a character: its code point, in brackets that every font has."""
    return f"⟨U+{ord(character):04X}⟩"


def acts(character: str) -> bool:
    """Tell whether a character is a control, a direction mark, a line separator, a lone surrogate or invisible."""
    return character not in KEPT and unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: str) -> str:
    """Replace every character that would act or hide by its mark."""
    if text.isprintable():  # of none of these categories: most texts, by far the fastest way to tell
        return text
    harmful = {character for character in set(text) if acts(character)}
    return text.translate({ord(character): mark(character) for character in harmful}) if harmful else text


def first_line(error: BaseException) -> str:
    """Take the first line of an error's text, 300 characters at most; its type's name where it has none."""
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:300]


def table_cell(text: str) -> str:
    """Escape a text for a cell of a table of Markdown."""
    return text.replace("|", "\\|")


class VisibleRecord(logging.LogRecord):
    """A line of a log whose message and traceback are made visible, whatever handler shows them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        try:
            message = self.getMessage()
        except (TypeError, ValueError, KeyError):
            return  # arguments that do not fit: the handler says so
        if (visible_message := visible(message)) is not message:
            self.msg, self.args = visible_message, ()
        if self.exc_info:
            # handlers take this for the traceback
            self.exc_text = visible(logging.Formatter().formatException(self.exc_info))


def make_logs_visible() -> None:
    """Make every later log line of this process visible."""
    logging.setLogRecordFactory(VisibleRecord)

"""Token ids as text, by the tokenizer of the policy that was trained."""

from collections.abc import Callable, Iterator
from functools import lru_cache

from tokenizers import Tokenizer

from r3l.audit.lines import Line, line_settings
from r3l.audit.reader import Reader
from r3l.errors import StoreError
from r3l.store.layout import line_folder
from r3l.system.home import locate

FILE = "tokenizer.json"
LARGEST = 64_000_000  # bytes; the largest vocabularies in use take about 20 MB


def decoder(reader: Reader, line: Line) -> Callable[[int], str]:
    """Make what a token id reads as. Raise StoreError, with the reason, where no tokenizer is at hand."""
    content = next(tokenizer_files(reader, line), None)
    if content is None or len(content) > LARGEST:
        raise StoreError(f"{line}: its store has no policy with a {FILE}, and neither has the path of its settings")
    tokenizer = parse_tokenizer(content)
    return lambda id_: tokenizer.decode([id_], skip_special_tokens=False) or tokenizer.id_to_token(id_) or f"⟨{id_}⟩"


def tokenizer_files(reader: Reader, line: Line) -> Iterator[bytes]:
    """Yield those of the policies that the line or its run wrote, the newest first; then that of the starting
    policy."""
    files = reader.store.files
    for folder in dict.fromkeys((line_folder(line.run, line.branch), line.run)):
        for name in sorted(files.folders(f"{folder}/policies"), reverse=True):
            if (content := files.read(f"{folder}/policies/{name}/policy/{FILE}")) is not None:
                yield content
    settings = line_settings(reader, line)
    start = locate(str(settings.get("policy.path", "no policy"))) / FILE
    if start.is_file():
        yield start.read_bytes()


@lru_cache(maxsize=2)
def parse_tokenizer(content: bytes) -> Tokenizer:
    try:
        return Tokenizer.from_buffer(content)
    except Exception as error:
        raise StoreError(f"{FILE} of the policy can't be read: {error}") from error

"""What `torch.save` wrote for other programs, as plain values."""

from pathlib import Path
from typing import Any

import torch

from r3l.errors import StoreError


def plain_values(file: Path) -> Any:
    """Read numbers, texts, lists, dicts and tensors; nothing in the file is run.

    Raises:
        StoreError: it holds anything else, or is no such file.
    """
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(f"{file}: not a file of torch.save ({str(error).strip():.200})") from error
    except Exception as error:  # of the class of pickle's own errors, which is not imported here
        raise StoreError(
            f"{file}: holds more than plain values, which would have to be run to be read: {str(error).strip():.200}; "
            "where you trust it, save it again without them: torch.save(json.loads(json.dumps(torch.load(FILE, "
            "weights_only=False), default=str)), FILE)"
        ) from error

"""The cache folder: downloads and compiled code, which can be deleted at any time."""

from __future__ import annotations

import os
from pathlib import Path

from undrift.config import UndriftError


def cache_folder() -> Path:
    """$UNDRIFT_CACHE, or else the user's cache folder."""
    import platformdirs

    try:
        return Path(os.environ.get("UNDRIFT_CACHE") or platformdirs.user_cache_dir("undrift"))
    except RuntimeError as error:  # a user without a home directory
        raise UndriftError(f"there is no cache folder ({error}); set UNDRIFT_CACHE") from None


def refuse_strangers(path: Path, consequence: str) -> None:
    """Raise if other users could have written the file or folder."""
    if os.name == "nt":
        return  # Windows has other permissions
    found = path.stat()
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022:
        raise UndriftError(
            f"{path} belongs to another user, or others may write to it, so {consequence}; "
            "`chmod go-w` it, or set UNDRIFT_CACHE to a folder of your own"
        )

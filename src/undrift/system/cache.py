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

"""The folder for what can be had again: downloads and compiled code."""

from __future__ import annotations

import os
from pathlib import Path

from undrift.config import UndriftError


def cache_folder() -> Path:
    """$UNDRIFT_CACHE, or else the user's own cache folder."""
    import platformdirs

    try:
        return Path(os.environ.get("UNDRIFT_CACHE") or platformdirs.user_cache_dir("undrift"))
    except RuntimeError as error:  # a user without a home
        raise UndriftError(f"there is no cache folder ({error}); set UNDRIFT_CACHE") from None

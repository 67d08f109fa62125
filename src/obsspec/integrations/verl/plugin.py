# pyright: basic, reportMissingImports=false
"""What verl loads by the entry point group `verl.plugins`: afterwards `obsspec_tool_agent` is a known agent loop.

verl hides the errors of plugins, so a wrong version is said here, once in each process.
"""

from __future__ import annotations

import logging

from obsspec.integrations.verl.versions import check_verl
from obsspec.values import ConfigError

try:
    check_verl()
except ConfigError as error:
    logging.getLogger(__name__).warning("obsspec_tool_agent is not available: %s", error)
else:
    import obsspec.integrations.verl.loop  # noqa: F401 - registers it

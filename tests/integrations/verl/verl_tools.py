"""The tools as verl's configuration names them."""

from verl.tools.function_tool import function_tool

from tests.integrations.verl.tools import shell

function_tool(shell)

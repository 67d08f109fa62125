"""Honest fakes, virtual time, and conformance suites: what it takes to test against obsspec without a model.

The fakes keep every promise of `obsspec.protocols`; what they say depends on seeds alone, when they say it on delays.
"""

from obsspec.testing.hermes_script import HermesScript, toy_hermes_renderer, toy_hermes_vocabulary
from obsspec.testing.policy import Request, ScriptedPolicy
from obsspec.testing.sandbox import ScriptedSandbox, oracle, seeded_answers
from obsspec.testing.scripts import TerminalScript, recite, terminal_script, toy_renderer
from obsspec.testing.shell import toy_shell, toy_shell_delay
from obsspec.testing.virtual_clock import Backend, run_virtual
from obsspec.testing.vocabulary import ToyVocabulary, toy_vocabulary
from obsspec.testing.world_model import Ending, Forecast, Move, ScriptedWorldModel, always, mixture

__all__ = [
    "Backend",
    "Ending",
    "Forecast",
    "HermesScript",
    "Move",
    "Request",
    "ScriptedPolicy",
    "ScriptedSandbox",
    "ScriptedWorldModel",
    "TerminalScript",
    "ToyVocabulary",
    "always",
    "mixture",
    "oracle",
    "recite",
    "run_virtual",
    "seeded_answers",
    "terminal_script",
    "toy_hermes_renderer",
    "toy_hermes_vocabulary",
    "toy_renderer",
    "toy_shell",
    "toy_shell_delay",
    "toy_vocabulary",
]

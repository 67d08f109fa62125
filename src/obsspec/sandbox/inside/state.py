"""How the state of the shell survives from one command to the next.

Every command runs in a fresh `bash -c COMMAND`. BASH_ENV makes bash read `START`, which restores the saved state; an
EXIT trap writes the new state when the command is over. Kept: directory (and `cd -`), variables with their
attributes, functions, aliases, `shopt` and `set` options, umask, `$?`. Not kept: traps, jobs, redirections of `exec`,
positional parameters. A directory that has gone is left for HOME. A command that kills the shell, or puts its own
trap on EXIT, keeps the state of before. No fork is needed to save, so a full process table loses nothing.
"""

from __future__ import annotations

import os

CONTROL = "OBSSPEC_CONTROL"  # environment variable of the forker: the number of its control socket
PLACE = "OBSSPEC_PLACE"  # environment variable of an init that finds another directory there than the usual one
USUAL = "/run/obsspec"
RUN = os.environ.get(PLACE, USUAL)
START = RUN + "/start"
STATE = RUN + "/state"
SAVE = RUN + "/save"
NAMES = RUN + "/names"
NEW = RUN + "/new"
CLOCK = RUN + "/clock"  # seconds since 1970, if the logical clock is to be seen
SEED = RUN + "/seed"  # read before the state, if random numbers have one
MARK = b"\n# complete\n"

_START = f"builtin . {STATE} 2>/dev/null\n"
_SEEDED = f"builtin . {SEED} 2>/dev/null\n"

# Every command pays for this script, and the next one for reading what it writes: so there is no loop in it.
_SAVE = r"""__obsspec_status=$? __obsspec_flags=$- __obsspec_options=$SHELLOPTS __obsspec_shopt=$BASHOPTS
\builtin set +e +x +u +v +k +f +t +o posix
\builtin shopt -u nocasematch
\builtin shopt -s extglob
\builtin compgen -v -X '@(@OWN)' >|@NAMES
\builtin mapfile -t __obsspec_kept <@NAMES
{
  \builtin printf '%s\n' '\builtin unset BASH_ENV' '\builtin shopt -qu ${BASHOPTS//:/ }'
  \builtin printf '%s\n' "\\builtin shopt -qs ${__obsspec_shopt//:/ }"
  \builtin declare -f
  \builtin declare -Fx
  \builtin declare -p "${__obsspec_kept[@]}"
  \builtin umask -p
  if [[ ${OLDPWD+x} ]]; then \builtin printf '\\builtin cd -- %q >/dev/null\n' "$OLDPWD"; fi
  \builtin printf '\\builtin cd -- %q >/dev/null\n' "$PWD"
  if [[ ! ${OLDPWD+x} ]]; then \builtin printf '%s\n' '\builtin unset OLDPWD'; fi
  \builtin alias -p
  \builtin printf '%s\n' "\\builtin trap '{ \\builtin . @SAVE; } 2>/dev/null' EXIT"
  \builtin printf '%s\n' "\\builtin set @FRESH${__obsspec_options:+ -o ${__obsspec_options//:/ -o }}"
  if [[ $__obsspec_flags != *e* ]]; then \builtin printf '%s\n' "\\builtin return $__obsspec_status"; fi
  \builtin printf '\n# complete\n'
} >|@NEW
"""
_FRESH = "+o braceexpand +o hashall +o interactive-comments"  # what is on in a new shell
_OWN = (  # variables of the shell itself, and ours
    "BASH|BASH_*|BASHOPTS|BASHPID|COMP_*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HOSTNAME|HOSTTYPE|LINENO|MACHTYPE|"
    "MAPFILE|OLDPWD|OPTERR|OPTIND|OSTYPE|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID|_|__obsspec_*"
)


def initial(environment: dict[str, str], directory: str = "") -> str:
    """The state before the first command. `directory`: where it runs, if not in HOME."""
    lines = ["\\builtin unset BASH_ENV", "shopt -s expand_aliases", "umask 022"]
    lines += [f"declare -x {name}={_quoted(value)}" for name, value in environment.items()]
    if directory:
        lines += [f"\\builtin cd -- {_quoted(directory)} >/dev/null", "unset OLDPWD"]
    lines += [f"trap '{{ \\builtin . {SAVE}; }} 2>/dev/null' EXIT", "builtin return 0"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def install(state: str, user: int | None, *, seeded: bool) -> None:
    """Write the fixed scripts and the first state; `user` may replace them."""
    save = _SAVE
    for name, text in (("@OWN", _OWN), ("@FRESH", _FRESH), ("@NAMES", NAMES), ("@NEW", NEW), ("@SAVE", SAVE)):
        save = save.replace(name, text)
    for path, text in ((START, _SEEDED * seeded + _START), (SAVE, save), (STATE, state)):
        put(path, text, user)
    if user is not None:
        os.chown(RUN, user, user)


def put(path: str, text: str, user: int | None) -> None:
    """Write a file that belongs to `user`."""
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    if user is not None:
        os.chown(path, user, user)


def adopt(*, wanted: bool) -> bool:
    """Make the state that the last command wrote the current one.

    False if it is not wanted, or if there is none, or not all of it. Nothing stays for the next command to be taken in.
    """
    try:
        with open(NEW, "rb") as file:
            complete = file.read().endswith(MARK)
        if wanted and complete:
            os.replace(NEW, STATE)
        else:
            os.unlink(NEW)
    except OSError:
        return False
    return wanted and complete

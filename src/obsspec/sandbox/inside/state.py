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
SHOPT = RUN + "/shopt"
NEW = RUN + "/new"
CLOCK = RUN + "/clock"  # seconds since 1970, if the logical clock is to be seen
SEED = RUN + "/seed"  # read before the state, if there is one
OPTIONS = RUN + "/options"
MARK = b"\n# complete\n"

_START = f"builtin . {SEED} 2>/dev/null\nbuiltin . {STATE} 2>/dev/null\n"

_SAVE = r"""__obsspec_status=$? __obsspec_flags=$-
\builtin set +o >|@OPTIONS
\builtin set +e +x +u +v +k +f +t +o posix
\builtin shopt -p >|@SHOPT
\builtin shopt -u nocasematch
\builtin compgen -v >|@NAMES
\builtin mapfile -t __obsspec_shopt <@SHOPT
\builtin mapfile -t __obsspec_all <@NAMES
\builtin mapfile -t __obsspec_options <@OPTIONS
__obsspec_kept=()
for __obsspec_name in "${__obsspec_all[@]}"; do
  case $__obsspec_name in
    BASH|BASH_*|BASHOPTS|BASHPID|COMP_*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HOSTNAME|HOSTTYPE|LINENO|MACHTYPE) ;;
    MAPFILE|OLDPWD|OPTERR|OPTIND|OSTYPE|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID|_) ;;
    __obsspec_*) ;;
    *) __obsspec_kept+=("$__obsspec_name") ;;
  esac
done
{
  \builtin echo '\builtin unset BASH_ENV'
  \builtin printf '%s\n' "${__obsspec_shopt[@]}"
  \builtin declare -f
  \builtin declare -Fx
  \builtin declare -p "${__obsspec_kept[@]}"
  \builtin umask -p
  if [[ ${OLDPWD+x} ]]; then \builtin printf '\\builtin cd -- %q >/dev/null\n' "$OLDPWD"; fi
  \builtin printf '\\builtin cd -- %q >/dev/null\n' "$PWD"
  if [[ ! ${OLDPWD+x} ]]; then \builtin echo '\builtin unset OLDPWD'; fi
  \builtin alias -p
  \builtin echo "\\builtin trap '{ \\builtin . @SAVE; } 2>/dev/null' EXIT"
  \builtin printf '%s\n' "${__obsspec_options[@]}"
  if [[ $__obsspec_flags != *e* ]]; then \builtin echo "\\builtin return $__obsspec_status"; fi
  \builtin printf '\n# complete\n'
} >|@NEW
"""


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


def install(state: str, user: int | None) -> None:
    """Write the fixed scripts and the first state; `user` may replace them."""
    save = _SAVE
    for name, path in (("@OPTIONS", OPTIONS), ("@NAMES", NAMES), ("@SHOPT", SHOPT), ("@NEW", NEW), ("@SAVE", SAVE)):
        save = save.replace(name, path)
    for path, text in ((START, _START), (SAVE, save), (STATE, state)):
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

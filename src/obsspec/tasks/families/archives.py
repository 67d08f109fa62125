"""Pack, list and unpack tar and gzip files."""

from __future__ import annotations

import gzip
import io
import tarfile

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import Absent, AnswerIs, FileIs, GzipIs, IsDirectory, TarContains
from obsspec.tasks.draft import Draft, Draw, listing, misnamed, one, text, told
from obsspec.tasks.task import Step

ARCHIVES = ("backup", "pack", "bundle", "archive", "export", "release", "old", "save")


def tar_bytes(files: tuple[FileSpec, ...], *, compressed: bool) -> bytes:
    """A tar archive of these files; the same bytes every time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for file in files:
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(file.content), file.mode
            tar.addfile(member, io.BytesIO(file.content))
    return gzip.compress(buffer.getvalue(), mtime=0) if compressed else buffer.getvalue()


def _files(draw: Draw, count: int) -> tuple[FileSpec, ...]:
    return tuple(FileSpec(draw.file(), text(draw.words(draw.number(1, 2)))) for _ in range(count))


def _suffix(draw: Draw) -> tuple[str, str]:
    return draw.pick(("tar", ""), ("tar.gz", "z"))


def pack(draw: Draw) -> Draft:
    suffix, flag = _suffix(draw)
    target, files = draw.file(suffix, *ARCHIVES), _files(draw, 2)
    first, second = (file.path for file in files)
    act = f"tar -c{flag}f {target} {first} {second}"
    step = Step(
        acts=one(act),
        looks=("ls",),
        reviews=(f"tar -tf {target}", "ls"),
        blunders=(
            (f"tar -c{flag}f {target} {first}", f"tar -tf {target}", act),
            (f"tar -c{flag}f {target} {first} {misnamed(second)}", "ls", act),
        ),
    )
    instruction = draw.pick(
        f"Pack {first} and {second} into the archive {target}.",
        f"Create {target} with tar from the files {first} and {second}.",
        f"Back up {first} and {second} in a tar archive called {target}.",
    )
    members = tuple((file.path, file.content) for file in files)
    return Draft(instruction, (step,), (TarContains(target, members),), files)


def unpack(draw: Draw) -> Draft:
    suffix, _ = _suffix(draw)
    archive, files = draw.file(suffix, *ARCHIVES), _files(draw, draw.number(1, 2))
    names = " and ".join(file.path for file in files)
    step = Step(
        acts=one(f"tar -xf {archive}"),
        looks=(f"tar -tf {archive}",),
        reviews=("ls", f"cat {files[0].path}"),
        blunders=((f"tar -xf {misnamed(archive)}.zip", "ls", f"tar -xf {archive}"),),
    )
    instruction = draw.pick(
        f"Unpack the archive {archive} here. It contains {names}.",
        f"Extract {archive} in the current directory. The archive has {names} inside.",
    )
    checks = tuple(FileIs(file.path, file.content) for file in files)
    spec = (FileSpec(archive, tar_bytes(files, compressed=suffix != "tar")),)
    return Draft(instruction, (step,), checks, spec)


def unpack_into(draw: Draw) -> Draft:
    suffix, _ = _suffix(draw)
    archive, folder, files = draw.file(suffix, *ARCHIVES), draw.directory(), _files(draw, draw.number(1, 2))
    act = f"tar -xf {archive} -C {folder}"
    step = Step(
        acts=((f"mkdir {folder}", act), (f"mkdir {folder} && {act}",)),
        looks=(f"tar -tf {archive}",),
        reviews=(f"ls {folder}",),
        blunders=((act, f"mkdir {folder}", act),),
    )
    instruction = draw.pick(
        f"Make a directory {folder} and extract {archive} into it.",
        f"Unpack the archive {archive} into a new folder named {folder}.",
    ) + draw.pick("", f" {archive} contains {listing([file.path for file in files])}.")
    checks = (IsDirectory(folder), *(FileIs(f"{folder}/{file.path}", file.content) for file in files))
    spec = (FileSpec(archive, tar_bytes(files, compressed=suffix != "tar")),)
    return Draft(instruction, (step,), checks, spec)


def members(draw: Draw) -> Draft:
    suffix, _ = _suffix(draw)
    archive, files = draw.file(suffix, *ARCHIVES), _files(draw, draw.number(2, 4))
    step = Step(
        acts=one(f"tar -tf {archive} | wc -l"),
        looks=(f"tar -tf {archive}",),
        blunders=((f"tar -tf {misnamed(archive)} | wc -l", "ls", f"tar -tf {archive} | wc -l"),),
    )
    instruction = draw.pick(
        f"How many files are in the archive {archive}? Answer with the number.",
        f"Count the files inside {archive} and answer with the count.",
    ) + draw.pick("", f" It should contain {listing([file.path for file in files])}.")
    spec = (FileSpec(archive, tar_bytes(files, compressed=suffix != "tar")),)
    answer = str(len(files))
    return Draft(instruction, (step,), (AnswerIs(answer),), spec, answer=answer)


def compress(draw: Draw) -> Draft:
    path, lines = draw.file(), draw.words(draw.number(2, 3))
    step = Step(
        acts=one(f"gzip {path}"),
        looks=("ls",),
        reviews=("ls", f"zcat {path}.gz"),
        blunders=((f"gzip {misnamed(path)}", "ls", f"gzip {path}"),),
    )
    instruction = draw.pick(
        f"Compress {path} with gzip, so that only {path}.gz remains.",
        f"Gzip the file {path}. The result should be {path}.gz.",
    ) + told(draw, path, lines)
    checks = (Absent(path), GzipIs(f"{path}.gz", text(lines)))
    return Draft(instruction, (step,), checks, (FileSpec(path, text(lines)),))


def decompress(draw: Draw) -> Draft:
    path, lines = draw.file(), draw.words(draw.number(2, 3))
    step = Step(
        acts=one(f"gunzip {path}.gz", f"gzip -d {path}.gz"),
        looks=(f"zcat {path}.gz",),
        reviews=(f"cat {path}", "ls"),
        blunders=((f"gunzip {path}", "ls", f"gunzip {path}.gz"),),
    )
    instruction = draw.pick(
        f"Decompress {path}.gz to get {path} back.",
        f"Unpack {path}.gz with gunzip, so that only {path} remains.",
    ) + told(draw, path, lines)
    checks = (Absent(f"{path}.gz"), FileIs(path, text(lines)))
    return Draft(instruction, (step,), checks, (FileSpec(f"{path}.gz", gzip.compress(text(lines), mtime=0)),))


KINDS = (pack, unpack, unpack_into, members, compress, decompress)

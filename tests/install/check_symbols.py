"""Checks the names in the dynamic symbol table of libreverb.so.

    check_symbols.py --nm NM --readelf READELF --users FILE LIBRARY

Only names of include/reverb leave the library, none of reverb::internal (except what inline functions of public headers
call), gRPC, Abseil or the standard library. All names leave it that a user of public headers needs: FILE lists object
files of such a user.
"""

import argparse
import re
import subprocess
import sys

PUBLIC = re.compile(
    r"^((vtable|typeinfo|typeinfo name|guard variable) for |non-virtual thunk to )?reverb::([A-Z]|operator)"
)
# The functions of reverb::internal that inline functions of public headers call.
CALLED_INLINE = re.compile(r"^reverb::internal::(AbortOnMissingValue|RequireError)\(")


def names(nm: str, *arguments: str) -> set[str]:
    """Returns the demangled names that nm prints."""
    output = subprocess.run([nm, "-C", *arguments], check=True, capture_output=True, text=True).stdout
    # "0000000000001000 T reverb::Server::Stop()"
    lines = (re.match(r"^[0-9a-f ]{16} (\S) (.+)$", line) for line in output.splitlines())
    return {line[2] for line in lines if line}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", required=True)
    parser.add_argument("--readelf", required=True)
    parser.add_argument("--users", required=True)
    parser.add_argument("library")
    options = parser.parse_args()
    problems = []

    exported = names(options.nm, "-D", "--defined-only", options.library)
    public = {name for name in exported if PUBLIC.match(name)}
    foreign = {name for name in exported - public if not CALLED_INLINE.match(name)}
    if not public:
        problems.append("the library exports nothing")
    problems += [f"is not public, but leaves the library: {name}" for name in sorted(foreign)[:20]]

    with open(options.users, encoding="utf-8") as file:
        objects = file.read().split()
    own = names(options.nm, "--defined-only", *objects)
    needed = {name for name in names(options.nm, "--undefined-only", *objects) if "reverb::" in name} - own
    if not needed:
        problems.append(f"{options.users} lists no object that uses the library")
    problems += [f"is needed, but does not leave the library: {name}" for name in sorted(needed - exported)[:20]]

    dynamic = subprocess.run(
        [options.readelf, "-d", options.library], check=True, capture_output=True, text=True
    ).stdout
    libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    problems += [
        f"{name} is linked as a shared library" for name in libraries if re.match(r"lib(grpc|gpr|ssl|crypto)", name)
    ]
    if not re.search(r"\(SONAME\).*\[libreverb\.so\.\d+\.\d+\]", dynamic):
        problems.append("the library has no SONAME with a version")

    for problem in problems:
        print(problem)
    print(f"{len(public)} public names, {len(exported) - len(public)} others, {len(needed)} needed by the program")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes every C++ block of the given pages into a folder as a program, and prints its name.

Each block is a complete program: readers copy exactly what is compiled. A file is written only if its text changes.
"""

import pathlib
import re
import sys


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for page in map(pathlib.Path, sys.argv[2:]):
        blocks = re.findall(r"^```cpp\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for number, block in enumerate(blocks, 1):
            name = f"docs_{page.stem.lower()}_{number}"
            if "int main(" not in block:
                print(f"{page}: C++ block {number} is not a complete program", file=sys.stderr)
                return 1
            program = folder / f"{name}.cc"
            if not program.exists() or program.read_text(encoding="utf-8") != block:
                program.write_text(block, encoding="utf-8")
            print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

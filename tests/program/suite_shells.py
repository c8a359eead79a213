"""Tests completion in real shells, where they are installed."""

import re
import shutil
import subprocess
import unittest

import frame
from frame import OK, ProgramTest, Terminal


class Shells(ProgramTest):
    def script(self, shell: str) -> str:
        text = self.expect(("completion", shell), OK)
        path = self.folder / f"reverb.{shell}"
        path.write_text(text)
        return str(path)

    def test_every_script_has_every_command(self):
        commands = re.findall(r"^  ([a-z]+)  ", self.expect(("--help",), OK).partition("Commands:")[2], re.M)
        self.assertIn("doctor", commands)
        for shell in ("bash", "zsh", "fish"):
            text = self.expect(("completion", shell), OK)
            for word in (*commands, "log-format", "checkpoint-every", "verify"):
                self.assertIn(word, text, shell)

    def fish(self, line: str) -> list[str]:
        """What fish suggests for a command line, without the descriptions."""
        script = f"source {self.script('fish')}; complete -C {line!r}"
        words = ["fish", "--no-config", "-c", script]
        options = {"cwd": self.folder, "timeout": frame.PATIENCE}
        ended = subprocess.run(words, capture_output=True, text=True, check=True, **options)
        self.assertEqual(ended.stderr, "")
        return [suggestion.split("\t")[0] for suggestion in ended.stdout.splitlines()]

    @unittest.skipIf(shutil.which("fish") is None, "fish is not installed")
    def test_fish(self):
        self.assertEqual(self.fish("reverb se"), ["serve", "set"])
        self.assertEqual(self.fish("reverb serve --po"), ["--port", "--port-file"])
        self.assertEqual(self.fish("reverb serve --log-format "), ["json", "text"])
        self.assertEqual(self.fish("reverb bench sam"), ["sample"])
        self.assertEqual(sorted(self.fish("reverb completion ")), ["bash", "fish", "zsh"])
        self.assertEqual(self.fish("reverb checkpoint i"), ["import", "inspect"])
        self.assertEqual(self.fish("reverb checkpoint verify x --j"), ["--json"])
        # `import` is a command, and one of `checkpoint`: each has its own options.
        self.assertEqual(self.fish("reverb import x --fo"), ["--format"])
        self.assertEqual(self.fish("reverb checkpoint import x --fo"), [])
        (self.folder / "server.toml").write_text("")
        self.assertIn("server.toml", self.fish("reverb serve --config ser"))
        self.assertEqual(self.fish("reverb info localhost:1 --every "), [])

    def zsh(self, line: str) -> str:
        """What zsh inserts when Tab is typed after a command line whose completion is unique."""
        setup = f"autoload -Uz compinit; compinit -u -D; source {self.script('zsh')}"
        screen = Terminal("-f", "-i", command="zsh", PS1="ready> ", TERM="dumb", HOME=str(self.folder))
        screen.wait_for("ready>")
        screen.type(f"cd {self.folder}; {setup}; unsetopt zle_bracketed_paste; echo set'_'up\n")
        screen.wait_for("set_up")
        start = len(screen.text)
        screen.type(f"{line}\t\x01: \x05 \x16|\n")  # prefix with `:`, so that it does nothing, and mark the end
        screen.wait_for("ready>", start)
        shown = screen.text[start:]
        screen.type("\x03exit\n")
        screen.end()
        return shown

    @unittest.skipIf(shutil.which("zsh") is None, "zsh is not installed")
    def test_zsh(self):
        words = ["zsh", "-f", "-n", self.script("zsh")]
        ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=frame.PATIENCE)
        self.assertEqual(ended.stderr, "")
        for line, expected in (
            ("reverb doc", "reverb doctor"),
            ("reverb serve --log-fo", "reverb serve --log-format"),
            ("reverb serve --log-format j", "reverb serve --log-format json"),
            ("reverb checkpoint ver", "reverb checkpoint verify"),
            ("reverb bench lat", "reverb bench latency"),
        ):
            with self.subTest(line):
                self.assertIn(expected, self.zsh(line))

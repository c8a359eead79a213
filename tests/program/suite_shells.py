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
        (self.folder / "server.toml").write_text("")
        self.assertIn("server.toml", self.fish("reverb serve --config ser"))
        self.assertIn("server.toml", self.fish("reverb import ser"))
        self.assertEqual(self.fish("reverb info ser"), [])
        self.assertEqual(self.fish("reverb info localhost:1 --every "), [])

    def zsh(self, lines: list[str]) -> list[str]:
        """What each command line is in zsh after Tab was typed at its end; for completions that are unique."""
        setup = "\n".join((
            "autoload -Uz compinit; compinit -u -D",
            f"source {self.script('zsh')}",
            "unset zle_bracketed_paste",
            'show_line() { print -r -- "<<$BUFFER>>"; BUFFER=; }',  # shows and clears what was typed
            "zle -N show_line; bindkey '^X' show_line",
        ))  # fmt: skip
        (self.folder / "setup.zsh").write_text(setup)
        screen = Terminal("-f", "-i", command="zsh", PS1="ready> ", TERM="dumb", HOME=str(self.folder))
        screen.wait_for("ready>")
        screen.type(f"cd {self.folder}; source ./setup.zsh; echo set'_'up\n")
        screen.wait_for("set_up")
        shown = []
        for line in lines:
            start = len(screen.text)
            screen.type(f"{line}\t\x18")
            screen.wait_for(">>", start)
            shown.append(re.search("<<(.*)>>", screen.text[start:]).group(1).strip())
        screen.type("exit\n")
        screen.end()
        return shown

    @unittest.skipIf(shutil.which("zsh") is None, "zsh is not installed")
    def test_zsh(self):
        words = ["zsh", "-f", "-n", self.script("zsh")]
        ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=frame.PATIENCE)
        self.assertEqual(ended.stderr, "")
        expected = {
            "reverb doc": "reverb doctor",
            "reverb serve --log-fo": "reverb serve --log-format=",
            "reverb serve --log-format j": "reverb serve --log-format json",
            "reverb serve --log-format=j": "reverb serve --log-format=json",
            "reverb serve --config ser": "reverb serve --config server.toml",
            "reverb checkpoint ver": "reverb checkpoint verify",
            "reverb checkpoint verify x --js": "reverb checkpoint verify x --json",
            "reverb bench lat": "reverb bench latency",
            "reverb import ser": "reverb import server.toml",
            "reverb info ser": "reverb info ser",
        }
        (self.folder / "server.toml").write_text("")
        self.assertEqual(dict(zip(expected, self.zsh(list(expected)), strict=True)), expected)

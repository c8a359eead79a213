"""Tests `reverb table`: tables that are added, changed and removed while the server runs."""

from frame import BAD_USAGE, FAILED, NOT_CONFIRMED, NOT_FOUND, OK, ProgramTest, Terminal


class Tables(ProgramTest):
    def test_a_table_is_added_and_removed(self):
        server = self.serve("--table", "t")
        words = ("table", "add", server.address, "new:prioritized=0.5:fifo:50", "--max-age", "10min")
        self.expect((*words, "--max-times-sampled", "4"), OK, 'Table "new" is there')
        table = self.table(server, "new")
        self.assertEqual((table["sampler"], table["max_size"]), ("prioritized=0.5", 50))
        self.assertEqual((table["max_age_seconds"], table["max_times_sampled"]), (600, 4))
        self.assertIsNone(self.table(server, "t")["max_age_seconds"])
        self.expect(("info", server.address), OK, "removed after 4 samples, removed after 10 min")
        self.expect(words, FAILED, '"new" exists already', "max_times_sampled is 4, not 0")
        self.expect((*words, "--max-times-sampled", "4", "--exist-ok"), OK)
        self.insert(server, "new", 3)
        self.expect(("table", "remove", server.address, "new"), NOT_CONFIRMED, "nothing was changed", "--yes")
        self.assertEqual(self.table(server, "new")["size"], 3)
        self.expect(("table", "remove", server.address, "new", "--yes"), OK, "3 items are removed")
        self.assertEqual([table["name"] for table in self.info(server)["tables"]], ["t"])
        self.expect(("table", "remove", server.address, "new", "-y"), NOT_FOUND, '"new"')

    def test_limits_change(self):
        server = self.serve("--table", "t:fifo:fifo:100")
        self.insert(server, "t", 5)
        words = ("--max-age", "1h", "--limiter", "min_size=2", "--max-times-sampled", "7")
        self.expect(("table", "change", server.address, "t", *words), OK, 'Table "t" is changed')
        table = self.table(server, "t")
        self.assertEqual((table["max_age_seconds"], table["max_times_sampled"], table["size"]), (3600, 7, 5))
        self.assertEqual(table["rate_limiter"]["min_size_to_sample"], 2)
        self.expect(("table", "change", server.address, "t", "--max-age", "none"), OK)
        self.assertIsNone(self.table(server, "t")["max_age_seconds"])

        self.expect(("table", "change", server.address, "t", "--max-age", "1us"), NOT_CONFIRMED, "nothing was changed")
        self.assertEqual(self.table(server, "t")["size"], 5)
        screen = Terminal("table", "change", server.address, "t", "--max-age", "1us", "--max-size", "4")
        screen.wait_for("Evict 1 item of table")
        screen.wait_for("and remove others that are older than")
        screen.type("n\n")
        self.assertEqual(screen.end(), NOT_CONFIRMED, screen.text)

        self.expect(("table", "resize", server.address, "t", "200"), OK)
        self.expect(("table", "resize", server.address, "t", "3"), NOT_CONFIRMED, "nothing was changed")
        self.assertEqual(self.table(server, "t")["max_size"], 200)
        screen = Terminal("table", "resize", server.address, "t", "3")
        screen.wait_for("Evict 2 items of table")
        screen.type("y\n")
        self.assertEqual(screen.end(), OK, screen.text)
        self.assertEqual(self.table(server, "t")["size"], 3)
        screen = Terminal("table", "change", server.address, "t", "--max-age", "1us")
        screen.wait_for("which has 3 items, that are older than")
        screen.type("y\n")
        self.assertEqual(screen.end(), OK, screen.text)
        self.assertIn("also in later checkpoints", screen.text)
        self.assertEqual(self.table(server, "t")["size"], 0)

    def test_mistakes(self):
        server = self.serve("--table", "t")
        for words, *parts in (
            (("add", server.address, "new:unform"), 'Did you mean "uniform"?'),
            (("add", server.address, "new", "--max-age", "long"), "--max-age", '"long"'),
            (("add", server.address, "new", "--limiter", "fast"), "--limiter", "KEY=VALUE"),
            (("change", server.address, "t"), "nothing to change", "--max-age"),
            (("resize", server.address, "t", "many"), "max size"),
            (("resize", server.address, "t", "0"), "max_size is 0"),
        ):
            self.expect(("table", *words), BAD_USAGE, *parts)
        self.expect(("table", "change", server.address, "x", "--max-size", "3"), NOT_FOUND, '"x"')

    def test_an_age_just_below_a_unit_is_shown_in_that_unit(self):
        path = self.folder / "server.toml"
        path.write_text('[[table]]\nname = "t"\nmax_age = 0.9997\n[[table]]\nname = "q"\nmax_age = 0.0009997\n')
        self.expect(("info", self.serve("--config", str(path)).address), OK, "removed after 1.0 s", "removed after 1 ms")

    def test_a_table_with_max_bytes(self):
        path = self.folder / "c.toml"
        path.write_text('[[table]]\nname = "t"\nmax_bytes = "1MiB"\n[[table]]\nname = "u"\n')
        server = self.serve("--config", str(path))
        self.assertEqual(self.table(server, "t")["max_bytes"], 1 << 20)
        self.assertIsNone(self.table(server, "u")["max_bytes"])
        self.expect(("info", server.address), OK, "remover fifo, at most 1 MiB")
        self.insert(server, "u", 10)
        words = ("table", "change", server.address, "u", "--max-bytes")
        self.expect((*words, "1000B"), NOT_CONFIRMED, "nothing was changed")
        self.expect((*words, "1000B", "--yes"), OK)
        table = self.table(server, "u")
        self.assertEqual((table["max_bytes"], 0 < table["size"] < 10), (1000, True))
        self.insert(server, "u", 10)
        self.assertEqual(self.table(server, "u")["size"], table["size"])
        self.expect((*words, "none"), OK)
        self.assertIsNone(self.table(server, "u")["max_bytes"])
        self.expect((*words, "much"), BAD_USAGE, "--max-bytes", '"much"')
        self.expect(("table", "add", server.address, "v", "--max-bytes", "2GiB"), OK)
        self.assertEqual(self.table(server, "v")["max_bytes"], 2 << 30)
        path.write_text('[[table]]\nname = "t"\nmax_bytes = "large"\n')
        self.expect(("serve", "--config", str(path), "--check"), BAD_USAGE, "table.max_bytes")

    def test_max_age_in_the_file(self):
        path = self.folder / "c.toml"
        path.write_text('[[table]]\nname = "t"\nmax_age = "5 min"\n[[table]]\nname = "q"\nkind = "queue"\nmax_size = 3\nmax_age = 2.5\n')
        server = self.serve("--config", str(path))
        self.assertEqual(self.table(server, "t")["max_age_seconds"], 300)
        self.assertEqual(self.table(server, "q")["max_age_seconds"], 2.5)
        path.write_text('[[table]]\nname = "t"\nmax_age = "long"\n')
        self.expect(("serve", "--config", str(path), "--check"), BAD_USAGE, "table.max_age", "5 min")

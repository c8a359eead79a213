"""Tests servers that keep part of their data on disk."""

from frame import BAD_USAGE, OK, ProgramTest, Server, wait_until


class Storage(ProgramTest):
    def start(self) -> Server:
        tier = self.folder / "tier"
        limits = ("--storage-memory-limit", "4MB", "--storage-disk-limit", "256MiB")
        return self.serve("--table", "t:uniform:fifo:2000", "--storage-path", str(tier), *limits)

    def fill(self, server: Server) -> dict:
        words = ("bench", "insert", "--address", server.address, "--table", "t", "--size", "40000")
        self.expect((*words, "--seconds", "0.5", "--rounds", "1"), OK)
        return wait_until("data on disk", lambda: (info := self.info(server))["storage_disk_bytes"] > 0 and info)

    def test_data_moves_to_disk_and_is_sampled(self):
        server = self.start()
        info = self.fill(server)
        self.assertEqual(info["storage_memory_limit"], 4_000_000)
        self.assertLessEqual(info["storage_memory_bytes"], 4_000_000)
        self.assertLessEqual(info["storage_file_bytes"], info["storage_disk_limit"])
        self.assertEqual(info["storage_error"], "")
        self.expect(("sample", server.address, "t", "--n", "20"), OK)
        self.assertEqual(self.info(server)["storage_lost_chunks"], 0)
        self.assertRegex(self.expect(("info", server.address), OK), "in memory, .* on disk")

    def test_the_next_server_removes_the_files_of_one_that_was_killed(self):
        server = self.start()
        self.fill(server)
        server.process.kill()
        server.process.wait()
        left = sorted((self.folder / "tier").glob("*.payloads"))
        self.assertTrue(left)
        self.start()
        wait_until("the files are removed", lambda: not any(file.exists() for file in left))

    def test_flags_are_checked(self):
        table = ("serve", "--check", "--table", "t:uniform:fifo:10")
        path = ("--storage-path", "x")
        self.expect((*table, *path), OK, "data that does not fit into memory in x")
        self.expect((*table, "--storage-memory-limit", "1GiB"), BAD_USAGE, "needs --storage-path")
        self.expect((*table, *path, "--storage-memory-limit", "0"), BAD_USAGE, "give a size above 0")
        self.expect((*table, *path, "--storage-memory-limit", "1GiB"), OK, "of data in memory; the rest in x")

    def test_memory_limit_is_part_of_that_of_the_server(self):
        table = ("--table", "t:uniform:fifo:10", "--storage-path", str(self.folder / "tier"), "--storage-disk-limit", "64MiB")
        limits = ("--memory-limit", "64MiB", "--storage-memory-limit", "60MiB")
        self.expect(("serve", *table, *limits, "--port", "0"), BAD_USAGE, "memory_limit is 62914560, more than the 54525952")
        server = self.serve(*table, "--memory-limit", "64MiB")
        self.assertEqual(self.info(server)["storage_memory_limit"], 54525952 // 4 * 3)

    def test_the_file_is_checked(self):
        file = self.folder / "server.toml"
        for text, problem in (
            ("memory_limit = 5", "storage.path"),
            ('path = ""', "a folder on a fast disk"),
            ('path = "x"\nmemory_limit = 0', "a size above 0"),
            ('path = "x"\nmemory_limit = 1\nsize = 3', "size"),
        ):
            file.write_text(f'[storage]\n{text}\n[[table]]\nname = "t"\nmax_size = 10\n')
            self.expect(("serve", "--check", "--config", str(file)), BAD_USAGE, problem)

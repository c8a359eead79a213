"""A server process, and a client of its native protocol that works message by message."""

import os
import queue
import subprocess
import threading
import time
import unittest

from protocol_messages import Unsealed, fields, grpc, pb, seal, unseal

PATIENCE = 30.0  # seconds; a test that waits this long has failed
QUIET = 0.25  # seconds without a message that count as silence

server_program = ""  # the path of scenario_server


def wait_until(what: str, condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what}")
        time.sleep(0.01)  # polls the condition


class Server:
    def __init__(self, *arguments: str):
        command = [server_program, "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("port "):
            raise AssertionError(f"the server said {line!r} instead of its port")
        self.address = "127.0.0.1:" + line.split()[1]

    def rss(self) -> int:
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError("the server is gone")

    def stop(self) -> int:
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code


class Stream:
    """A bidirectional stream of bytes. Messages are serialised here, so that invalid ones can be sent too."""

    END = object()

    def __init__(self, channel, method: str, response_type):
        self._out = queue.SimpleQueue()
        self._in = queue.SimpleQueue()
        self._response_type = response_type
        self._num_sent = self._num_received = 0
        self.last_size = 0  # bytes of the last response that count against the credit
        self.last_messages = 0  # number of messages of the last response
        self._call = channel.stream_stream(f"/reverb.v1.Reverb/{method}")(iter(self._out.get, self.END))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for data in self._call:
                self._in.put(data)
        except grpc.RpcError:
            pass  # end() returns the error
        self._in.put(self.END)

    def send(self, message) -> None:
        data = bytes(message) if isinstance(message, bytes) else message.SerializeToString()
        if not isinstance(message, Unsealed):
            data = seal(data, self._num_sent)
            self._num_sent += 1
        self._out.put(data)

    def finish(self) -> None:
        self._out.put(self.END)

    def cancel(self) -> None:
        self._call.cancel()
        self.finish()

    def receive_bytes(self, timeout: float = PATIENCE):
        """Returns the bytes of the next response, with its parts joined; None after the timeout."""
        parts = []
        self.last_size = self.last_messages = 0
        while True:
            data = self._receive_message(timeout)
            if data is None:
                return None
            self.last_size += len(data)
            self.last_messages += 1
            data = unseal(data, self._num_received)
            self._num_received += 1
            message = self._response_type.FromString(data)
            total = getattr(message, "response_bytes", 0)
            if total == 0:
                return data
            parts.append(message.part)
            if sum(map(len, parts)) == total:
                return unseal(b"".join(parts), 0)

    def _receive_message(self, timeout: float):
        try:
            data = self._in.get(timeout=timeout)
        except queue.Empty:
            return None
        if data is self.END:
            raise AssertionError(f"the stream ended with {self._call.code()}: {self._call.details()}")
        return data

    def receive(self, timeout: float = PATIENCE):
        data = self.receive_bytes(timeout)
        if data is None:
            raise AssertionError(f"no response within {timeout} s")
        return self._response_type.FromString(data)

    def end(self):
        """Waits for the end and returns the code, the text and the Status from the details."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self._in.get(timeout=max(0.0, deadline - time.monotonic())) is self.END:
                    break
            except queue.Empty:
                raise AssertionError(f"the stream has not ended after {PATIENCE} s") from None
        self.finish()
        return self._call.code(), self._call.details(), details_of(self._call)


def details_of(call):
    for key, value in call.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return pb.Status.FromString(value)
    return None


def hello(session: bytes = b"", **fields):
    fields.setdefault("min_version", 1)
    fields.setdefault("max_version", 1)
    return pb.Hello(session_id=session or os.urandom(16), client_name="speak_protocol", **fields)


class InsertStream(Stream):
    def __init__(self, channel, session: bytes = b""):
        super().__init__(channel, "Insert", pb.InsertResponse)
        self.rejections = {}
        self.send(pb.InsertRequest(hello=hello(session)))
        self.first = self.receive()
        self.welcome = self.first.welcome
        self.confirmed = self.first.confirmed_through

    def await_confirmed(self, number: int) -> None:
        while self.confirmed < number:
            response = self.receive()
            if response.confirmed_through < self.confirmed:
                raise AssertionError("confirmations went back")
            self.confirmed = response.confirmed_through
            for rejection in response.rejections:
                self.rejections[rejection.number] = rejection.status


class SampleStream(Stream):
    def __init__(self, channel, window: int = 0):
        super().__init__(channel, "Sample", pb.SampleResponse)
        self.send(pb.SampleRequest(hello=hello(receive_window_bytes=window)))
        data = self.receive_bytes()
        self.welcome_bytes = self.last_size
        self.welcome = pb.SampleResponse.FromString(data).welcome

    def sample(self, table: str, count: int, **fields):
        """Requests samples until the end. Returns (sample, its response) for each, and the end."""
        self.send(pb.SampleRequest(request_id=1, table=table, count=count, **fields))
        samples = []
        while True:
            data = self.receive_bytes()
            if data is None:
                raise AssertionError(f"{len(samples)} of {count} samples came, then nothing")
            response = pb.SampleResponse.FromString(data)
            samples += [(sample, response) for sample in response.samples]
            self.send(pb.SampleRequest(taken_bytes=self.last_size))
            if response.HasField("end"):
                return samples, response.end


class ProtocolTest(unittest.TestCase):
    ARGUMENTS = ("--table", "replay:fifo:1000000:any", "--table", "jobs:queue=1", "--table", "per:prioritized")

    def setUp(self):
        self.server = Server(*self.ARGUMENTS)
        self.channel = self.connect()

    def tearDown(self):
        self.channel.close()
        code = self.server.stop()
        self.assertEqual(code, 0, "the server did not stop cleanly")

    def connect(self):
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.insecure_channel(self.server.address, options=options)

    def call(self, method: str, request, response_type=None):
        """Makes a single call, to the Reverb service unless `method` is a path."""
        path = method if method.startswith("/") else f"/reverb.v1.Reverb/{method}"
        data = bytes(request) if isinstance(request, bytes) else request.SerializeToString()
        is_ours = path.startswith("/reverb.v1.")
        if is_ours and not isinstance(request, Unsealed):
            data = seal(data, 0)
        answer = self.channel.unary_unary(path)(data, timeout=PATIENCE)
        if is_ours:
            answer = unseal(answer, 0)
        return (response_type or getattr(pb, f"{method}Response")).FromString(answer)

    def call_error(self, method: str, request):
        with self.assertRaises(grpc.RpcError) as caught:
            self.call(method, request)
        error = caught.exception
        return error.code(), error.details(), details_of(error)

    def info(self, table: str):
        for info in self.call("Info", pb.InfoRequest()).tables:
            if info.name == table:
                return info
        self.fail(f"there is no table {table}")

    def check_end(self, end, code, *texts: str, detail=0) -> None:
        got, text, status = end
        self.assertEqual(got, code, text)
        for part in texts:
            self.assertIn(part, text)
        if detail is None:
            return
        self.assertIsNotNone(status, f"no status in the details of: {text}")
        self.assertEqual((status.code, status.detail, status.message), (code.value[0], detail, text))

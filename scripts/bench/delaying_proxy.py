"""A proxy for HTTP that delays and records each request. It stands for the distance to a server."""

import asyncio
import re
import threading

CHUNK = 1 << 18
EXPECT = re.compile(rb"\r\nexpect: *100-continue\r\n", re.IGNORECASE)


class DelayingProxy:
    """Passes requests on to the address `host:port` after `delay_secs` each. Runs in a thread until the block ends."""

    def __init__(self, address, delay_secs):
        self.upstream = address.rsplit(":", 1)
        self.delay_secs = delay_secs
        self.requests = []

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self.serve, "127.0.0.1", 0, limit=CHUNK), self.loop).result()
        self.address = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)

    def take_requests(self):
        """Method and path of each request since the last call."""
        taken, self.requests = self.requests, []
        return taken

    async def serve(self, reader, writer):
        server = None
        try:
            while head := await read_head(reader):
                method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
                self.requests.append((method, path))
                await asyncio.sleep(self.delay_secs)
                server = server or await asyncio.open_connection(*self.upstream, limit=CHUNK)
                if EXPECT.search(head):
                    # The client waits with its body, and the server would send two answers.
                    head = EXPECT.sub(b"\r\n", head)
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                server[1].write(head)
                await copy_body(head, reader, server[1])
                answer = await read_head(server[0])
                writer.write(answer)
                if method != "HEAD" and answer.split(b" ", 2)[1] not in (b"204", b"304"):
                    await copy_body(answer, server[0], writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for end in (writer, server and server[1]):
                if end:
                    end.close()


async def read_head(reader):
    """The first line and the headers of a message; empty at the end of the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return b""


async def copy_body(head, reader, writer):
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    if headers.get(b"transfer-encoding") == b"chunked":
        size = None
        while size != 0:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            writer.write(line)
            await copy_bytes(size + 2, reader, writer)
    else:
        await copy_bytes(int(headers.get(b"content-length", 0)), reader, writer)


async def copy_bytes(count, reader, writer):
    while count:
        chunk = await reader.read(min(count, CHUNK))
        if not chunk:
            raise ConnectionError("the connection ended within a body")
        writer.write(chunk)
        await writer.drain()
        count -= len(chunk)

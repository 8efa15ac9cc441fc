"""uvicorn's protocol without upgrades, with a bound on what comes before a body and behind it; the server speaks it.

The parser keeps a URL and headers of any length, and copies what it has of one for every piece that arrives.
Source: measured, a header of 192 MB held every caller up for 5 s at a time, and stayed in memory.

The parser takes all that follows a head with `Upgrade` for another protocol, so a body behind it would be lost; Java's
HttpClient sends `Upgrade: h2c` by default. A server may ignore it: the head is read again without that header.
Source: RFC 9110 §7.8; Kludex/uvicorn#2722 and MagicStack/httptools#124.
"""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Proxies pass on 8 to 32 KB. A last read from the socket, up to 256 KB, may come on top.
MOST_HEAD_BYTES = 64 << 10


class BoundedProtocol(HttpToolsProtocol):
    """A connection of HTTP/1, closed when too much comes without an end of headers or a piece of a body."""

    _head_bytes = 0
    _again = b""  # the head to read again, while its first reading ends

    def data_received(self, data: bytes) -> None:
        """Parse what came; bytes that end headers, or belong to a body, do not count."""
        self._head_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("Request line and headers are too long.")

    def on_headers_complete(self) -> None:
        """Begin to count anew, and a request unless its head is read again."""
        self._head_bytes = 0
        # The parser calls a tunnel an upgrade too; it has no head that could be read otherwise.
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._again = self._head_without_upgrade()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Begin to count anew."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request that was begun."""
        if not self._again:
            super().on_message_complete()

    def _head_without_upgrade(self) -> bytes:
        start = self.parser.get_method(), self.url, self.parser.get_http_version().encode()
        kept = (b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade")
        return b"%b %b HTTP/%b\r\n%b\r\n" % (*start, b"".join(kept))

    def _parse(self, data: bytes) -> None:
        """Feed the parser; where it stops at an upgrade, a new one gets the head without it, and what follows."""
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as stop:
                if not self._again:
                    return
                rest = memoryview(rest)[stop.args[0] :]
            head, self._again = self._again, b""
            # The old one would skip all that follows `Connection: close`.
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self.parser.feed_data(head)

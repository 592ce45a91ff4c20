"""An upstream that a test plays: HTTP/1.1 on 127.0.0.1, a thread a connection."""
import re
import socket
import threading


class PlayedUpstream:
    """`play(sock, first, body)` of a subclass answers one request, whose request line and whole body it gets; False: the
    connection ends. `lock` is for what its threads share."""

    def __init__(self, limit_s):
        self.limit_s, self.lock = limit_s, threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.attend, args=(sock,), daemon=True).start()

    @staticmethod
    def more(sock, data):
        part = sock.recv(65536)
        if not part:
            raise ConnectionResetError
        return data + part

    def requests(self, sock):
        """Request line and body of each, until the client leaves (OSError)."""
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                data = self.more(sock, data)
            head, data = data.split(b"\r\n\r\n", 1)
            length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head).group(1))
            while len(data) < length:
                data = self.more(sock, data)
            yield head.split(b"\r\n")[0].decode(), data[:length]
            data = data[length:]

    def attend(self, sock):
        sock.settimeout(self.limit_s)
        try:
            for first, body in self.requests(sock):
                if not self.play(sock, first, body):
                    return
        except OSError:
            pass
        finally:
            sock.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)   # wakes the thread that accepts
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

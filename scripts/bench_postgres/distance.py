"""A way to a server on this machine that takes as long as one to a distant server, and loses packets where asked.

    distance.py PORT [LATENCY_MS [LOSS]]

prints the port that leads to PORT. Everything sent to the server arrives LATENCY_MS later, as much at a time as is sent:
the rate is not limited. LOSS is the share of pieces (of up to 64 KiB) that come RETRANSMISSION_S later, as TCP makes of a
lost packet. No packet is lost in fact, since the kernel here has no emulation of networks.
"""

import asyncio, os, random, signal, sys

PIECE = 1 << 16
RETRANSMISSION_S = 0.2


async def carry(reader, writer, latency_s, loss, chance):
    """Copies in order; each piece leaves `latency_s` after it came."""
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue(1024)

    async def send():
        while (item := await pieces.get()) is not None:
            due, piece = item
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            writer.write(piece)
            await writer.drain()

    sender = asyncio.create_task(send())
    try:
        while piece := await reader.read(PIECE):
            lost = RETRANSMISSION_S if chance.random() < loss else 0
            await pieces.put((loop.time() + latency_s + lost, piece))
    finally:
        await pieces.put(None)
        try:
            await sender
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            writer.close()


async def serve(port, latency_s, loss):
    chance = random.Random(1)

    async def connected(reader, writer):
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        both = (carry(reader, other_writer, latency_s, loss, chance), carry(other_reader, writer, 0, loss, chance))
        await asyncio.gather(*both, return_exceptions=True)
        for end in (writer, other_writer):
            end.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    port, latency_ms, loss = (sys.argv[1:] + ["10", "0"][len(sys.argv) - 2:])[:3]
    # Connections that end with the process are nobody's loss.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    asyncio.run(serve(int(port), float(latency_ms) / 1000, float(loss)))

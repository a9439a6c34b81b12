"""aiortc: pure-Python ICE, DTLS, SRTP and SCTP. Arguments and result as for the other drivers: see README.md."""

import asyncio
import json
import sys
import time
from urllib.parse import urljoin

import aiohttp
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError

CONNECT_S_MAX = 15
STEP_S_MAX = 10
MESSAGES = 20


async def call(whip: str, seconds: float) -> dict:
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.addTrack(AudioStreamTrack())
    heard = hear(pc)
    echoes = echo_channel(pc)
    started = time.monotonic()
    await pc.setLocalDescription(await pc.createOffer())
    async with aiohttp.ClientSession() as http:
        location, session, answer = await open_session(http, whip, pc.localDescription.sdp)
        try:
            await pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
            await until(lambda: pc.connectionState == "connected", CONNECT_S_MAX, "not connected")
            connected_ms = (time.monotonic() - started) * 1000
            await until(lambda: echoes["count"] == MESSAGES, STEP_S_MAX, "echoes are missing")
            await until(lambda: heard["frames"] >= 50 * seconds - 25, seconds * 2 + 1, "audio is missing")
            result = {
                "connected_ms": connected_ms,
                "session": session,
                "state": pc.connectionState,
                "echoes": echoes["count"],
                "frames": heard["frames"],
                **measure(await pc.getStats()),
                "remote": remote(pc),
            }
        finally:
            async with http.delete(location) as response:
                deleted = response.status
            await pc.close()
        return {**result, "deleted": deleted}


async def open_session(http: aiohttp.ClientSession, whip: str, offer: str) -> tuple:
    async with http.post(whip, data=offer, headers={"content-type": "application/sdp"}) as response:
        answer = await response.text()
        if response.status != 201:
            raise RuntimeError(f"POST {response.status}: {answer}")
        return urljoin(whip, response.headers["location"]), response.headers.get("firsthop-session"), answer


def echo_channel(pc: RTCPeerConnection) -> dict:
    channel = pc.createDataChannel("events")
    state = {"count": 0}

    @channel.on("open")
    def send() -> None:
        for number in range(MESSAGES):
            channel.send(f"message {number}")

    @channel.on("message")
    def take(message: str) -> None:
        state["count"] += message == f"message {state['count']}"

    return state


def hear(pc: RTCPeerConnection) -> dict:
    state = {"frames": 0}

    async def read(track) -> None:
        try:
            while True:
                await track.recv()
                state["frames"] += 1
        except MediaStreamError:
            pass

    @pc.on("track")
    def start(track) -> None:
        state["reader"] = asyncio.ensure_future(read(track))

    return state


def measure(stats) -> dict:
    found = {"sent": 0, "received": 0, "lost": 0}
    for stat in stats.values():
        if stat.type == "inbound-rtp":
            found["received"] += stat.packetsReceived
            found["lost"] += stat.packetsLost
        elif stat.type == "outbound-rtp":
            found["sent"] += stat.packetsSent
    return found


def remote(pc: RTCPeerConnection) -> str:
    """aiortc has no public accessor for the selected pair."""
    connection = pc.getTransceivers()[0].sender.transport.transport._connection
    host, port = connection._nominated[1].remote_addr[:2]
    return f"{host}:{port}"


async def until(condition, seconds_max: float, problem: str) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(problem)
        await asyncio.sleep(0.02)


def main() -> int:
    whip, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 5.0
    try:
        result, code = asyncio.run(call(whip, seconds)), 0
    except Exception as error:  # whatever went wrong is the result
        result, code = {"error": f"{type(error).__name__}: {error}"}, 1
    print(json.dumps({"client": "aiortc", **result}))
    return code


if __name__ == "__main__":
    sys.exit(main())

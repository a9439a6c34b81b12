// libdatachannel (node-datachannel): its own API, so its own call. RTP is built here byte by byte and comes back as bytes,
// which lets this client check that each payload returned is one it sent.

import nd from 'node-datachannel';

import { drive } from './driver.mjs';
import { Whip } from './whip.mjs';

const PAYLOAD_TYPE = 111;
const SSRC = 4242;
const PACKET_MS = 20;
const PAYLOAD_BYTES = 80;
const MESSAGES = 20;
const CONNECT_MS_MAX = 15_000;

async function call(plan) {
  const pc = new nd.PeerConnection('client', { iceServers: [] });
  const media = new Media(pc);
  const channel = echoChannel(pc);
  const started = performance.now();
  const { session, answer } = await Whip.open(plan.whip, await offer(pc));
  try {
    pc.setRemoteDescription(answer, 'answer');
    await until(() => pc.state() === 'connected', CONNECT_MS_MAX, () => `connection is ${pc.state()}`);
    const connected_ms = performance.now() - started;
    media.start();
    await until(() => channel.echoes === MESSAGES, CONNECT_MS_MAX, () => `echoes: ${channel.echoes}`);
    await until(() => media.sent >= plan.seconds * 50, plan.seconds * 2000 + 1000, () => `sent ${media.sent}`);
    media.stop();
    await until(() => media.received === media.sent, 2000, () => '').catch(() => {});
    const { remote } = pc.getSelectedCandidatePair();
    return {
      connected_ms, session: session.name, state: pc.state(), sent: media.sent, received: media.received,
      lost: media.sent - media.received, altered: media.altered, echoes: channel.echoes,
      remote: `${remote.address}:${remote.port}`, deleted: await session.close(),
    };
  } finally {
    pc.close();
  }
}

// One Opus stream of numbered payloads.
class Media {
  sent = 0;
  received = 0;
  altered = 0;

  constructor(pc) {
    const description = new nd.Audio('audio', 'SendRecv');
    description.addOpusCodec(PAYLOAD_TYPE);
    description.addSSRC(SSRC, 'client', 'stream', 'track');
    this.track = pc.addTrack(description);
    this.track.onMessage((packet) => this.take(packet));
  }

  start() {
    this.timer = setInterval(() => this.send(), PACKET_MS);
  }

  stop() {
    clearInterval(this.timer);
  }

  send() {
    const packet = Buffer.alloc(12 + PAYLOAD_BYTES, this.sent & 0xff);
    packet.writeUInt16BE(0x8000 | PAYLOAD_TYPE, 0);
    packet.writeUInt16BE(this.sent & 0xffff, 2);
    packet.writeUInt32BE((this.sent * 960) >>> 0, 4);
    packet.writeUInt32BE(SSRC, 8);
    packet.writeUInt32BE(this.sent, 12);
    if (this.track.sendMessageBinary(packet)) this.sent += 1;
  }

  take(packet) {
    if (packet.length < 12 || (packet[1] & 0x7f) !== PAYLOAD_TYPE) return;
    const payload = packet.subarray(12);
    const number = payload.length === PAYLOAD_BYTES ? payload.readUInt32BE(0) : -1;
    const intact = number >= 0 && number < this.sent && payload.subarray(4).every((byte) => byte === (number & 0xff));
    this.received += 1;
    this.altered += intact ? 0 : 1;
  }
}

function echoChannel(pc) {
  const channel = pc.createDataChannel('events');
  const state = { echoes: 0 };
  channel.onOpen(() => {
    for (let number = 0; number < MESSAGES; number += 1) channel.sendMessage(`message ${number}`);
  });
  channel.onMessage((text) => { state.echoes += text === `message ${state.echoes}` ? 1 : 0; });
  return state;
}

// The offer, with every candidate in it. Making the channel has started gathering, which may be over by now.
async function offer(pc) {
  await until(() => pc.gatheringState() === 'complete', CONNECT_MS_MAX, () => `gathering is ${pc.gatheringState()}`);
  return pc.localDescription().sdp;
}

async function until(condition, ms_max, describe) {
  const deadline = performance.now() + ms_max;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(describe());
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

await drive('libdatachannel', call);

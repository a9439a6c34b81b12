// One call over the standard RTCPeerConnection API. Chromium, Firefox and @roamhq/wrtc run this same file.
//
// plan: { whip: URL, seconds: how long media flows at least, actions: ['restart', 'renegotiate', 'trickle'] }
// platform: { microphone: async () => track, peer: constructor, hear: (track) => void }
// Resolves to the result that `README.md` beside this file lays down.

import { Whip, attribute, withIceOf } from './whip.mjs';

const CONNECT_MS_MAX = 15_000;
const STEP_MS_MAX = 10_000;
const MESSAGES = 20;
const BLOB_BYTES = 16 * 1024;

export async function call(plan, platform) {
  const pc = new (platform.peer ?? RTCPeerConnection)({ iceServers: [] });
  pc.addTrack(await platform.microphone());
  pc.ontrack = (event) => platform.hear?.(event.track);
  const channel = echoChannel(pc);
  const started = performance.now();
  await pc.setLocalDescription(await pc.createOffer());
  const { session, answer } = await Whip.open(plan.whip, pc.localDescription.sdp);
  try {
    await pc.setRemoteDescription({ type: 'answer', sdp: narrowed(answer, plan.only) });
    await until(() => pc.connectionState === 'connected', CONNECT_MS_MAX, () => `connection is ${pc.connectionState}`);
    const result = { connected_ms: performance.now() - started, session: session.name };
    const timeline = watch(pc);
    const heals = heal(pc, session, answer);
    await moreAudio(pc, 'audio');
    await until(() => channel.complete(), STEP_MS_MAX, () => `echoes: ${channel.echoes}`);
    for (const action of plan.actions) {
      result[action] = { ...(await ACTIONS[action](pc, session, answer)), received: await moreAudio(pc, action) };
    }
    await until(() => performance.now() - started > plan.seconds * 1000, plan.seconds * 2000 + 1000, () => 'clock');
    timeline.stop();
    return { ...result, echoes: channel.echoes, blob_echoed: channel.blobEchoed, state: pc.connectionState,
      timeline: timeline.received, silence_ms: timeline.silence(), heals: heals.done, ...(await measure(pc)), deleted: await session.close() };
  } catch (error) {
    await session.close().catch(() => {});
    throw error;
  } finally {
    pc.close();
  }
}

const ACTIONS = {
  async restart(pc, session, answer) {
    const before = { etag: session.etag, ufrag: attribute(answer, 'ice-ufrag') };
    await pc.setLocalDescription(await pc.createOffer({ iceRestart: true }));
    const { status, body } = await session.restartIce(pc.localDescription.sdp);
    await pc.setRemoteDescription({ type: 'answer', sdp: withIceOf(body, pc.remoteDescription?.sdp ?? answer) });
    return { status, new_ufrag: attribute(body, 'ice-ufrag') !== before.ufrag, new_etag: session.etag !== before.etag };
  },
  async renegotiate(pc, session) {
    pc.addTransceiver('audio', { direction: 'recvonly' });
    await pc.setLocalDescription(await pc.createOffer());
    const { status, body } = await session.renegotiate(pc.localDescription.sdp);
    await pc.setRemoteDescription({ type: 'answer', sdp: body });
    return { status, sections: body.match(/^m=/gm).length };
  },
  async trickle(pc, session) {
    return { status: (await session.trickle(pc.localDescription.sdp)).status };
  },
};

// Sends numbered texts and one blob as soon as the channel opens, and checks what comes back.
function echoChannel(pc) {
  const channel = pc.createDataChannel('events');
  channel.binaryType = 'arraybuffer';
  const blob = Uint8Array.from({ length: BLOB_BYTES }, (_, at) => at & 0xff);
  const state = { echoes: 0, blobEchoed: false, complete: () => state.echoes === MESSAGES && state.blobEchoed };
  channel.onopen = () => {
    for (let number = 0; number < MESSAGES; number += 1) channel.send(`message ${number}`);
    channel.send(blob);
  };
  channel.onmessage = ({ data }) => {
    if (typeof data === 'string') state.echoes += data === `message ${state.echoes}` ? 1 : 0;
    else state.blobEchoed = equal(new Uint8Array(data), blob);
  };
  return state;
}

// Waits for 50 more received packets: one second of audio.
async function moreAudio(pc, step) {
  const before = (await measure(pc)).received;
  let received = before;
  await until(async () => (received = (await measure(pc)).received) >= before + 50, STEP_MS_MAX,
    () => `no audio after ${step}: ${received - before} packets`);
  return received;
}

// Packets received, once a second; and the longest time without one, as fine as a browser renews its figures.
function watch(pc) {
  const received = [];
  const timer = setInterval(async () => received.push((await measure(pc)).received), 1000);
  const last = { received: 0, at: performance.now(), silence: 0 };
  const closer = setInterval(async () => {
    const found = (await measure(pc)).received;
    const now = performance.now();
    last.silence = Math.max(last.silence, now - last.at);
    if (found > last.received) Object.assign(last, { received: found, at: now });
  }, 20);
  return { received, silence: () => last.silence, stop: () => [timer, closer].forEach(clearInterval) };
}

// What a page does whose device has another address: restarts ICE when its path is gone.
function heal(pc, session, answer) {
  const heals = { done: 0 };
  pc.oniceconnectionstatechange = async () => {
    if (pc.iceConnectionState !== 'disconnected' && pc.iceConnectionState !== 'failed') return;
    heals.done += 1;
    await ACTIONS.restart(pc, session, answer).catch((error) => console.log(`restart: ${error.message}`));
  };
  return heals;
}

// An answer without candidates at other addresses than `only`, an `ADDRESS:PORT`.
function narrowed(answer, only) {
  if (!only) return answer;
  const at = only.lastIndexOf(':');
  const kept = ` ${only.slice(0, at).replace(/[[\]]/g, '')} ${only.slice(at + 1)} `;
  return answer.split('\r\n').filter((line) => !line.startsWith('a=candidate:') || line.includes(kept)).join('\r\n');
}

async function measure(pc) {
  const found = { sent: 0, received: 0, lost: 0, energy_in: 0, energy_out: 0, samples_in: 0, remote: null };
  const stats = new Map();
  (await pc.getStats()).forEach((stat) => stats.set(stat.id, stat));
  for (const stat of stats.values()) {
    if (stat.type === 'inbound-rtp') {
      found.received += stat.packetsReceived ?? 0;
      found.lost += stat.packetsLost ?? 0;
      found.energy_in += stat.totalAudioEnergy ?? 0;
      found.samples_in += stat.totalSamplesReceived ?? 0;
    } else if (stat.type === 'outbound-rtp') found.sent += stat.packetsSent ?? 0;
    else if (stat.type === 'media-source') found.energy_out += stat.totalAudioEnergy ?? 0;
    else if (stat.type === 'candidate-pair' && stat.nominated && stat.state === 'succeeded') {
      const remote = stats.get(stat.remoteCandidateId);
      found.remote = remote ? `${remote.address ?? remote.ip}:${remote.port}` : found.remote;
    }
  }
  return found;
}

async function until(condition, ms_max, describe) {
  const deadline = performance.now() + ms_max;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(describe());
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function equal(left, right) {
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}

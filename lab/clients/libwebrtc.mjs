// libwebrtc without a browser (@roamhq/wrtc): a 440 Hz tone in, decoded frames out.

import wrtc from '@roamhq/wrtc';

import { call } from './call.mjs';
import { drive } from './driver.mjs';

const RATE = 48_000;
const FRAMES = RATE / 100;

await drive('libwebrtc', async (plan) => {
  const heard = { frames: 0, loud: 0 };
  const result = await call(plan, {
    peer: wrtc.RTCPeerConnection,
    microphone: async () => tone(),
    hear(track) {
      new wrtc.nonstandard.RTCAudioSink(track).ondata = ({ samples }) => {
        heard.frames += 1;
        heard.loud += samples.some((sample) => Math.abs(sample) > 1000) ? 1 : 0;
      };
    },
  });
  return { ...result, frames: heard.frames, loud_frames: heard.loud };
});

function tone() {
  const source = new wrtc.nonstandard.RTCAudioSource();
  let at = 0;
  const timer = setInterval(() => {
    const samples = Int16Array.from({ length: FRAMES }, () => 8000 * Math.sin((2 * Math.PI * 440 * at++) / RATE));
    source.onData({ samples, sampleRate: RATE, bitsPerSample: 16, channelCount: 1, numberOfFrames: FRAMES });
  }, 10);
  timer.unref();
  return source.createTrack();
}

// What every Node driver shares: `DRIVER WHIP_URL [SECONDS [ACTION,ACTION.. [ONLY]]]`, one line of JSON on stdout, exit code 1 on failure.

import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';

export async function drive(client, run) {
  const [whip, seconds = '5', actions = '', only = ''] = process.argv.slice(2);
  const plan = { whip, seconds: Number(seconds), actions: actions.split(',').filter(Boolean), only };
  try {
    print({ client, ...(await run(plan)) });
    process.exit(0);
  } catch (error) {
    print({ client, error: String(error.message ?? error) });
    process.exit(1);
  }
}

// Runs `call` in a page of its own origin, as a web application would; the WHIP endpoint is another origin.
export async function servePage() {
  const scripts = { '/call.mjs': 'text/javascript', '/whip.mjs': 'text/javascript' };
  const server = createServer(async (request, response) => {
    const type = scripts[request.url];
    response.setHeader('content-type', type ?? 'text/html');
    response.end(type ? await readFile(new URL(`.${request.url}`, import.meta.url)) : '<!doctype html><title>call</title>');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${server.address().port}/`;
}

// Evaluated in the page: the fake microphone, and an audio element so that the browser decodes what it receives.
export async function callInPage(plan) {
  const { call } = await import('/call.mjs');
  return call(plan, {
    microphone: async () => (await navigator.mediaDevices.getUserMedia({ audio: true })).getAudioTracks()[0],
    hear(track) {
      const audio = document.body.appendChild(document.createElement('audio'));
      audio.autoplay = true;
      audio.srcObject = new MediaStream([track]);
    },
  });
}

function print(result) {
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

// Debian's Chromium, headless, with its fake microphone (a beep each second).

import { chromium } from 'playwright-core';

import { callInPage, drive, servePage } from './driver.mjs';

const ARGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--autoplay-policy=no-user-gesture-required',
  '--use-fake-device-for-media-stream',
  '--use-fake-ui-for-media-stream',
];

await drive('chromium', async (plan) => {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', headless: true, args: ARGS });
  try {
    const page = await browser.newPage();
    page.on('console', (message) => process.stderr.write(`${message.text()}\n`));
    await page.goto(await servePage());
    return await page.evaluate(callInPage, plan);
  } finally {
    await browser.close();
  }
});

// Debian's Firefox ESR, headless, driven over WebDriver BiDi, with its fake microphone (a tone).
// Firefox pairs no loopback candidates, so the PoP must have another address: run this in a network namespace.

import puppeteer from 'puppeteer-core';

import { callInPage, drive, servePage } from './driver.mjs';

const PREFS = {
  'media.navigator.streams.fake': true,
  'media.navigator.permission.disabled': true,
  'media.autoplay.default': 0,
  'media.peerconnection.ice.obfuscate_host_addresses': false,
  'app.update.auto': false,
  'app.normandy.enabled': false,
  'browser.safebrowsing.update.enabled': false,
  'captivedetect.canonicalURL': '',
  'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false,
  'services.settings.server': 'data:,',
  'toolkit.telemetry.enabled': false,
};

await drive('firefox', async (plan) => {
  const browser = await puppeteer.launch({
    browser: 'firefox',
    executablePath: '/usr/bin/firefox-esr',
    headless: true,
    extraPrefsFirefox: PREFS,
  });
  try {
    const page = await browser.newPage();
    page.on('console', (message) => process.stderr.write(`${message.text()}\n`));
    await page.goto(await servePage());
    return await page.evaluate(callInPage, plan);
  } finally {
    await browser.close();
  }
});

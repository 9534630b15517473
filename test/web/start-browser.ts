import chromium from '@sparticuz/chromium';
import { type Browser, chromium as playwright } from 'playwright-core';

/** Starts Chromium from the package `@sparticuz/chromium`, which contains the program. */
export async function startBrowser(): Promise<Browser> {
  // Its own sandbox needs a user other than root.
  return playwright.launch({ executablePath: await chromium.executablePath(), args: ['--no-sandbox'] });
}

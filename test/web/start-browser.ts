import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Browser, chromium } from 'playwright-core';

/** Starts Chromium from the package `@sparticuz/chromium`, which contains the program. */
export async function startBrowser(): Promise<Browser> {
  // Its own sandbox needs a user other than root.
  return chromium.launch({ executablePath: await unpackChromium(), args: ['--no-sandbox'] });
}

/**
 * Returns the path of the unpacked program. Suites in several processes start at the same time, and a program that is
 * still being written cannot be started; so each process unpacks into a folder of its own, and the first one wins.
 */
async function unpackChromium(): Promise<string> {
  const folder = join(tmpdir(), 'runlake-chromium');
  const program = join(folder, 'chromium');
  if (existsSync(program)) return program;
  const own = await mkdtemp(`${folder}-`);
  // The package unpacks into the folder of temporary files of its process.
  const unpack = `await (await import('${import.meta.resolve('@sparticuz/chromium')}')).default.executablePath()`;
  await promisify(execFile)(process.execPath, ['--input-type=module', '-e', unpack], {
    env: { ...process.env, TMPDIR: own },
  });
  await rename(own, folder).catch(async (error: NodeJS.ErrnoException) => {
    await rm(own, { recursive: true });
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
  });
  return program;
}

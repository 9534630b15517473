import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, onTestFinished } from 'vitest';

/** Creates a folder before the first test of a suite, and removes it after the last one. */
export function folderForSuite(): string {
  const folder = join(tmpdir(), `runlake-suite-${randomBytes(4).toString('hex')}`);
  beforeAll(() => mkdirSync(folder, { mode: 0o700 }));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Creates a folder that is removed when the test ends. */
export function folderForTest(): string {
  const folder = mkdtempSync(join(tmpdir(), 'runlake-test-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
  return folder;
}

import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { buildGraphEnvironment } from '../../../../infra/config/graph-environment.ts';
import { createLogger } from '../../../../infra/telemetry/logger.ts';
import { openAuthProcess } from '../../../../pipelines/agents/auth/auth-process.ts';
import { readGraphsFile } from '../../../../pipelines/agents/graphs/graphs-file.ts';
import { projectFile } from '../../../agents/pool-under-test.ts';
import { folderForTest } from '../../../folders.ts';

const source = `
import { existsSync } from 'node:fs';
if (existsSync(new URL('fails', import.meta.url))) throw new Error('fails while it is imported, on purpose');
const authenticate = ({ headers }) =>
  headers.has('x-many') ? { identity: 'a', many: Array.from({ length: 300_000 }, () => ({})) } :
  headers.has('x-end') ? process.exit(3) : headers.has('x-hang') ? new Promise(() => {}) : String(process.pid);
export const auth = { '~handlerCache': { authenticate } };`;

/** Runs `use` with the custom authentication `source` in `folder`. `ended` has an entry for each process that ended. */
async function withAuth(
  use: (opened: {
    readonly folder: string;
    readonly ended: readonly unknown[];
    /** Returns the id of the process that answered. */
    identify(...headers: [string, string][]): Promise<string>;
  }) => Promise<void>,
): Promise<void> {
  const folder = folderForTest();
  const path = join(folder, 'auth.mjs');
  await writeFile(path, source);
  const file = {
    ...(await readGraphsFile(projectFile('auth'))),
    auth: { path, name: 'auth', disableStudioAuth: false },
  };
  const ended: unknown[] = [];
  const warn = (...line: unknown[]) => void ended.push(line);
  const logger = Object.assign(createLogger('silent', 'test'), { warn });
  const auth = await openAuthProcess({
    ...{ file, environment: buildGraphEnvironment(), heartbeatTimeoutMs: 10_000, logger },
  });
  try {
    await use({
      folder,
      ended,
      identify: async (...headers) =>
        (await auth.identify({ method: 'GET', url: 'http://localhost/', headers })).identity,
    });
  } finally {
    await auth.close();
  }
}

it('refuses a user with very many values, whose JSON would block the server', () =>
  withAuth(async ({ ended, identify }) => {
    await expect(identify(['x-many', '1'])).rejects.toMatchObject({ code: 'WORKER_MESSAGE_TOO_LARGE' });
    expect(await identify()).toMatch(/^\d+$/);
    expect(ended).toEqual([]);
  }));

const soon = { timeout: 20_000, interval: 200 };

it('recovers after processes that could not import the module of the project', () =>
  withAuth(async ({ folder, ended, identify }) => {
    expect(await identify()).toMatch(/^\d+$/);
    await writeFile(join(folder, 'fails'), '');
    await expect(identify(['x-end', '1'])).rejects.toMatchObject({ code: 'AUTH_UNAVAILABLE' });
    await expect.poll(() => ended.length, { timeout: 20_000 }).toBeGreaterThan(2);
    await expect(identify()).rejects.toMatchObject({ code: 'AUTH_UNAVAILABLE' });
    await rm(join(folder, 'fails'));
    await expect.poll(() => identify().catch(() => undefined), soon).toMatch(/^\d+$/);
  }));

it('replaces a process that leaves 512 requests unanswered', () =>
  withAuth(async ({ ended, identify }) => {
    const first = await identify();
    const hanging = (count: number) =>
      Promise.allSettled(Array.from({ length: count }, () => identify(['x-hang', '1'])));
    await hanging(511);
    expect(await identify()).toBe(first);
    await hanging(1);
    await expect.poll(() => ended.length, soon).toBe(1);
    const another = expect.stringMatching(new RegExp(`^(?!${first}$)\\d+$`));
    await expect.poll(() => identify().catch(() => undefined), soon).toEqual(another);
  }));

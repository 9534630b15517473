import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { buildGraphEnvironment } from '../../../../infra/config/graph-environment.ts';
import { createLogger } from '../../../../infra/telemetry/logger.ts';
import { openAuthProcess } from '../../../../pipelines/agents/auth/auth-process.ts';
import { readGraphsFile } from '../../../../pipelines/agents/graphs/graphs-file.ts';
import { projectFile } from '../../../agents/pool-under-test.ts';

const source = `
import { existsSync } from 'node:fs';
if (existsSync(new URL('fails', import.meta.url))) throw new Error('fails while it is imported, on purpose');
const authenticate = (request) => (request.headers.has('x-end') ? process.exit(3) : 'ada');
export const auth = { '~handlerCache': { authenticate } };`;

it('recovers after processes that could not import the module of the project', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'runlake-auth-'));
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
  const identify = (...headers: [string, string][]) =>
    auth.identify({ method: 'GET', url: 'http://localhost/', headers });
  try {
    expect(await identify()).toMatchObject({ identity: 'ada' });
    await writeFile(join(folder, 'fails'), '');
    await expect(identify(['x-end', '1'])).rejects.toMatchObject({ code: 'AUTH_UNAVAILABLE' });
    await expect.poll(() => ended.length, { timeout: 20_000 }).toBeGreaterThan(2);
    await expect(identify()).rejects.toMatchObject({ code: 'AUTH_UNAVAILABLE' });
    await rm(join(folder, 'fails'));
    await expect
      .poll(() => identify().catch(() => undefined), { timeout: 20_000, interval: 200 })
      .toMatchObject({ identity: 'ada' });
  } finally {
    await auth.close();
    await rm(folder, { recursive: true });
  }
});

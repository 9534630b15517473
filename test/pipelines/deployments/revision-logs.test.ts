import { expect, it } from 'vitest';
import { openDatabase, type Sql } from '../../../infra/postgres/pool.ts';
import { openRevisionLog, readLog } from '../../../pipelines/deployments/revision-logs.ts';
import { openFaultProxy } from '../../crash/fault-proxy.ts';
import { forSuite } from '../../for-suite.ts';
import { listLockWaits } from '../../infra/postgres/lock-waits.ts';
import { until } from '../../infra/until.ts';
import { logger } from '../../silent-logger.ts';
import { openDeployments } from './add-deployment.ts';

const under = forSuite(() => openDeployments());

const privateKey = '-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\nsecond-line-of-it\n-----END PRIVATE KEY-----\n';

it('stores no line of a secret, however it is written', async () => {
  const { latestRevisionId } = await under.create('masked');
  const revisionId = String(latestRevisionId);
  const long = 'long-secret-value';
  const log = openRevisionLog(under, { revisionId, stage: 'run', values: [privateKey, long, 'short'] });
  log.write(`key: ${privateKey}`);
  for (const line of privateKey.split('\n')) log.write(`  ${line}`);
  log.write(JSON.stringify({ key: privateKey, other: 'shown' }));
  // The secret is where the line is cut.
  log.write(`${'x'.repeat(3_990)}${long}`);
  await log.flush();
  const chunks = await readLog(under.database, revisionId, { after: 0, limit: 100 });
  const text = chunks.map((chunk) => chunk.text).join('\n');
  expect(text).toContain('"other":"shown"');
  for (const part of ['MIIEvQ', 'second-line', 'BEGIN PRIVATE', 'long-s']) expect(text).not.toContain(part);
});

it.each([
  ['very many lines', 'y\n'.repeat(2_000_000)],
  ['a very long line', 'a'.repeat(1_000_000)],
  ['a very long path', '/'.repeat(1_000_000)],
])('does not block the process with %s, and keeps the last lines', async (_what, output) => {
  const { latestRevisionId } = await under.create(`flood of ${output.length}${output[0]}`);
  const revisionId = String(latestRevisionId);
  const log = openRevisionLog(under, { revisionId, stage: 'build', values: ['secret-at-the-end'] });
  const startMs = performance.now();
  log.write(output);
  log.write('the reason: secret-at-the-end');
  expect(performance.now() - startMs).toBeLessThan(5_000);
  expect(log.tail(1)).toBe('the reason: ***');
  await log.flush();
});

it('keeps the log of the build, however much the replicas write', async () => {
  const { latestRevisionId } = await under.create('chatty');
  const revisionId = String(latestRevisionId);
  const build = openRevisionLog(under, { revisionId, stage: 'build', values: [] });
  build.write('built');
  await build.flush();
  await under.database.execute(
    `INSERT INTO revision_logs (revision_id, stage, text) SELECT $1, 'run', n::text FROM generate_series(1, 500) AS n`,
    [revisionId],
  );
  const run = openRevisionLog(under, { revisionId, stage: 'run', values: [] });
  run.write('501');
  await run.flush();
  const chunks = await readLog(under.database, revisionId, { after: 0, limit: 1_000 });
  expect(chunks.map(({ text }) => text)).toEqual(['built', ...Array.from({ length: 500 }, (_, at) => `${at + 2}`)]);
});

it('shows no path of the machine for files of the build', async () => {
  const { latestRevisionId } = await under.create('paths');
  const revisionId = String(latestRevisionId);
  const log = openRevisionLog(under, { revisionId, stage: 'run', values: [] });
  expect(log.mask(`'/data/builds/${revisionId}/src/a.js' cannot be loaded`)).toBe("'src/a.js' cannot be loaded");
  expect(log.mask(`at file:///data/builds/${revisionId}/src/a.js:1:2 (/usr/lib/x.js)`)).toBe(
    'at src/a.js:1:2 (/usr/lib/x.js)',
  );
  expect(log.mask(`/b/${revisionId}/a.js and "/b/${revisionId}/b.js" in /${revisionId}/ and ${revisionId}`)).toBe(
    `a.js and "b.js" in /${revisionId}/ and ${revisionId}`,
  );
});

it('hides no line of a replica from a reader that has read a line of another one', async () => {
  const { latestRevisionId } = await under.create('two replicas');
  const revisionId = String(latestRevisionId);
  const openLog = (database: Sql) => openRevisionLog({ database, logger }, { revisionId, stage: 'run', values: [] });
  const read = (after: number) => readLog(under.database, revisionId, { after, limit: 9 });
  let second: Promise<void> | undefined;
  let position = 0;
  await under.database.transaction(async (tx) => {
    const first = openLog(tx);
    first.write('first');
    await first.flush();
    const other = openLog(under.database);
    other.write('second');
    second = other.flush();
    await until('the second line to be stored, or to wait', async () => {
      position = (await read(0)).at(-1)?.sequence ?? 0;
      return position > 0 || (await listLockWaits(under.database, '%revision_logs%')).length > 0;
    });
  });
  await second;
  expect((await read(position)).map(({ text }) => text)).toEqual(['first', 'second']);
});

it('loses no line while Postgres is unavailable for a moment', async () => {
  const { latestRevisionId } = await under.create('outage');
  const revisionId = String(latestRevisionId);
  const url = new URL(under.stores.databaseUrl);
  const proxy = await openFaultProxy([{ host: url.hostname, port: Number(url.port) }]);
  url.port = String(proxy.ports[0]);
  const database = openDatabase({ url: url.href, logger, timeoutMs: 10_000 });
  const log = openRevisionLog({ database, logger }, { revisionId, stage: 'run', values: [] });
  proxy.away(true);
  log.write('during the outage');
  const flushed = log.flush();
  setTimeout(() => proxy.away(false), 100);
  await flushed;
  await database.close();
  await proxy.close();
  const chunks = await readLog(under.database, revisionId, { after: 0, limit: 9 });
  expect(chunks.map(({ text }) => text)).toEqual(['during the outage']);
});

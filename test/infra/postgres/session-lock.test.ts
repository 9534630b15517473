import { expect, test } from 'vitest';
import { acquireSessionLock } from '../../../infra/postgres/session-lock.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { openTcpProxy } from '../tcp-proxy.ts';
import { until } from '../until.ts';

const stores = forSuite(() => freshStores({ migrated: false }));

const take = (key: number, url = stores.databaseUrl) => acquireSessionLock({ url, key, logger, waitMs: 300 });
const holders = (key: number) =>
  stores.database.query<{ pid: number }>(
    `SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database
     WHERE locktype = 'advisory' AND granted AND objid = $1 AND datname = current_database()`,
    [key],
  );
const endHolder = async (key: number) => {
  for (const { pid } of await holders(key)) await stores.database.query('SELECT pg_terminate_backend($1, 5000)', [pid]);
};

test('has one holder at a time and can be taken again after its release', async () => {
  const first = await take(1);
  expect(first).toBeDefined();
  expect(await take(1)).toBeUndefined();
  await first?.release();
  const second = await take(1);
  expect(second).toBeDefined();
  await second?.release();
  expect(await holders(1)).toEqual([]);
});

test('is taken again after its connection is lost', async () => {
  const lock = await take(2);
  const [before] = await holders(2);
  await endHolder(2);
  await until('another session to hold it', async () => {
    const [now] = await holders(2);
    return now !== undefined && now.pid !== before?.pid;
  });
  expect(await take(2)).toBeUndefined();
  await lock?.release();
});

test('reports its loss only if another process took it in the meantime', async () => {
  const address = new URL(stores.databaseUrl);
  const proxy = await openTcpProxy(address.hostname, Number(address.port));
  const through = new URL(stores.databaseUrl);
  through.host = `127.0.0.1:${proxy.port}`;
  const lock = await take(3, through.href);
  let lost = false;
  void lock?.lost.then(() => {
    lost = true;
  });
  proxy.freeze(true);
  await endHolder(3);
  const other = await take(3);
  expect(other).toBeDefined();
  expect(lost).toBe(false);
  proxy.freeze(false);
  await until('the loss to be reported', () => lost, 20_000);
  await lock?.release();
  await other?.release();
  await proxy.close();
});

test('is not lost to an own session whose response never arrived', async () => {
  const address = new URL(stores.databaseUrl);
  const proxy = await openTcpProxy(address.hostname, Number(address.port));
  const through = new URL(stores.databaseUrl);
  through.host = `127.0.0.1:${proxy.port}`;
  const lock = await take(4, through.href);
  let lost = false;
  void lock?.lost.then(() => {
    lost = true;
  });
  const attempts = () => proxy.sent().toString('latin1').split('pg_try_advisory_lock').length - 1;
  const before = attempts();
  proxy.dropResponseTo('pg_try_advisory_lock');
  await endHolder(4);
  await until('the lock to be taken by a session that is lost, and then by another one', async () => {
    return lost || (attempts() >= before + 2 && (await holders(4)).length === 1);
  });
  expect(lost).toBe(false);
  expect(await take(4)).toBeUndefined();
  await lock?.release();
  await until('the lock to have no holder', async () => (await holders(4)).length === 0);
  await proxy.close();
});

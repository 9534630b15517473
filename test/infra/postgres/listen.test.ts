import { copyFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { listen } from '../../../infra/postgres/listen.ts';
import { freshStores } from '../../engines/stores.ts';
import { folderForTest } from '../../folders.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { listenOnLoopback } from '../listen-on-loopback.ts';

const stores = forSuite(() => freshStores({ migrated: false }));

const notify = (channel: string, payload: string) =>
  stores.database.query('SELECT pg_notify($1, $2)', [channel, payload]);
const listeners = () =>
  stores.database.query<{ pid: number }>(
    `SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND query IN ('LISTEN "one"; LISTEN "Two"', 'SELECT 1')`,
  );

async function startListening() {
  const heard: string[] = [];
  const listener = await listen({
    url: stores.databaseUrl,
    channels: ['one', 'Two'],
    onNotice: (channel, payload) => heard.push(`${channel} ${payload}`),
    logger,
  });
  return { heard, listener };
}

it('delivers committed notifications of its channels in order, and no others', async () => {
  const { heard, listener } = await startListening();
  expect(heard.splice(0)).toEqual(['one ', 'Two ']);
  await notify('other', 'x');
  await stores.database
    .transaction(async (tx) => {
      await tx.query(`SELECT pg_notify('one', 'undone')`);
      throw new Error('undone');
    })
    .catch(() => undefined);
  await notify('one', 'a');
  await notify('Two', 'b');
  await vi.waitFor(() => expect(heard).toEqual(['one a', 'Two b']));
  await listener.close();
  await vi.waitFor(async () => expect(await listeners()).toEqual([]));
});

it('reports every channel after a lost connection, and listens again', async () => {
  const { heard, listener } = await startListening();
  heard.length = 0;
  const [session] = await listeners();
  await stores.database.query('SELECT pg_terminate_backend($1, 5000)', [session?.pid]);
  // The listener may be back already: Postgres reports the end of a process up to 100 ms later.
  await notify('one', 'missed');
  await vi.waitFor(() => expect(heard).toEqual(expect.arrayContaining(['one ', 'Two '])), { timeout: 10_000 });
  await notify('one', 'c');
  await vi.waitFor(() => expect(heard.at(-1)).toBe('one c'));
  await listener.close();
});

it('keeps reconnecting while a file of its certificates is missing', async () => {
  const folder = folderForTest();
  const certificates = join(folder, 'root.pem');
  await copyFile(new URL('../tls/certificates/authority.pem', import.meta.url), certificates);
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.destroy();
  });
  onTestFinished(() => {
    server.close();
  });
  const port = await listenOnLoopback(server);
  const url = `postgres://nobody@127.0.0.1:${port}/none?sslmode=verify-ca&sslrootcert=${certificates}`;
  const listener = await listen({ url, channels: ['one'], onNotice: () => undefined, logger });
  await rm(certificates);
  const before = connections;
  await vi.waitFor(() => expect(connections).toBeGreaterThan(before + 1), { timeout: 10_000 });
  await listener.close();
});

it('starts while Postgres is unreachable, and can be closed while it reconnects', async () => {
  const onNotice = vi.fn();
  const listener = await listen({ url: 'postgres://nobody@127.0.0.1:1/none', channels: ['one'], onNotice, logger });
  await listener.close();
  expect(onNotice).not.toHaveBeenCalled();
});

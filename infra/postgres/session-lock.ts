/**
 * A lock that one process at a time holds in a database.
 *
 * Invariant: while `lost` is pending, nobody else was seen to hold the lock; Postgres gives it up with the connection.
 *
 *   1. A connection of its own takes the advisory lock. A process that was killed a moment ago may still be seen as its holder
 *      until Postgres notices, so this waits a little.
 *   2. The connection breaks: connect again, for as long as Postgres does not answer (nobody else can reach it then, either).
 *   3. End what Postgres still has of our earlier connections, and take the lock once more. Somebody else has it: `lost`.
 *      One whose answer never came may hold the lock too, so each is remembered from the moment it has a name.
 *
 * Needs a session of Postgres itself: a pooler that shares sessions between transactions must not stand in between.
 */
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import type { Logger } from '../telemetry/logger.ts';
import { type PostgresAddress, postgresAddress } from './address.ts';
import { databaseFault } from './faults.ts';

export interface SessionLockOptions {
  /** `postgres://user:password@host:port/database` */
  readonly url: string;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  /** Any number that nothing else in this database locks. */
  readonly key: number;
  readonly logger: Logger;
  /** How long to wait for one who is just ending. Default 5 s. */
  readonly waitMs?: number;
}

export interface SessionLock {
  /** Resolves when somebody else has taken the lock while the connection was broken. */
  readonly lost: Promise<void>;
  release(): Promise<void>;
}

const retryMs = 100;

interface Session {
  readonly client: pg.Client;
  readonly broken: Promise<void>;
}

/** What tells a session of Postgres from every other, also a later one under the same process id. */
interface SessionName {
  readonly pid: number;
  readonly started_at: string;
}

/** Takes the lock. @returns undefined where somebody else has it. @throws what {@link databaseFault} makes of a failure. */
export async function takeSessionLock(options: SessionLockOptions): Promise<SessionLock | undefined> {
  const { key, logger, waitMs = 5_000 } = options;
  const address = postgresAddress(options.url, options.authorities);
  let released = false;
  const earlier: SessionName[] = [];
  let session = await connect(address, earlier).catch((raw) => {
    throw databaseFault(raw);
  });
  const deadline = Date.now() + waitMs;
  try {
    while (!(await tryLock(session, key))) {
      if (Date.now() >= deadline) {
        await session.client.end();
        return undefined;
      }
      await pause(retryMs);
    }
  } catch (raw) {
    await session.client.end().catch(() => undefined);
    throw databaseFault(raw);
  }

  /** Steps 2 and 3. @returns whether the lock is ours again. */
  async function takeAgain(): Promise<boolean> {
    for (;;) {
      if (released) return true;
      let next: Session | undefined;
      try {
        const before = [...earlier];
        next = await connect(address, earlier);
        await next.client.query(
          `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
           WHERE (pid, backend_start::text) IN (SELECT * FROM unnest($1::int[], $2::text[]))`,
          [before.map(({ pid }) => pid), before.map(({ started_at }) => started_at)],
        );
        earlier.splice(0, before.length);
        const held = await tryLock(next, key);
        if (held && !released) session = next;
        else await next.client.end();
        return held;
      } catch {
        await next?.client.end().catch(() => undefined);
        await pause(retryMs);
      }
    }
  }

  async function keep(): Promise<void> {
    for (;;) {
      await session.broken;
      if (released) return;
      logger.warn('the connection to Postgres that holds the lock of this process was lost');
      if (!(await takeAgain())) return;
    }
  }

  const keeping = keep();
  return {
    lost: keeping.then(() => (released ? new Promise<void>(() => undefined) : undefined)),
    async release() {
      released = true;
      await session.client.end().catch(() => undefined);
      await keeping;
    },
  };
}

/** Connects, and adds the name of the session to `names`. */
async function connect(address: PostgresAddress, names: SessionName[]): Promise<Session> {
  const client = new pg.Client({
    ...address,
    application_name: 'runlake lock',
    connectionTimeoutMillis: 5_000,
    query_timeout: 10_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 5_000,
  });
  const broken = new Promise<void>((resolve) => {
    client.once('end', resolve);
    // Without a listener it would end the process; `end` follows.
    client.on('error', () => resolve());
  });
  try {
    await client.connect();
    // A machine that is gone sends no end: Postgres finds out by asking.
    await client.query('SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3');
    const { rows } = await client.query<SessionName>(
      'SELECT pid, backend_start::text AS started_at FROM pg_stat_activity WHERE pid = pg_backend_pid()',
    );
    names.push(rows[0]!);
    return { client, broken };
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
}

async function tryLock({ client }: Session, key: number): Promise<boolean> {
  const { rows } = await client.query<{ held: boolean }>('SELECT pg_try_advisory_lock($1) AS held', [key]);
  return rows[0]?.held === true;
}

/**
 * A session lock (advisory lock) in Postgres that one process at a time can hold.
 *
 * Invariant: while `lost` is pending, this process has not observed another holder. Postgres releases the lock when the
 * session ends.
 *
 *   1. Take the advisory lock on a dedicated connection. If it is held, retry briefly: Postgres may not yet have ended
 *      the session of a killed process.
 *   2. If the connection breaks, reconnect until Postgres responds (other processes cannot reach it in that time
 *      either).
 *   3. Terminate the earlier sessions of this process and take the lock again. If another process holds it, resolve
 *      `lost`. A session whose response never arrived may also hold the lock, so each session is recorded as soon as
 *      its id is known.
 *
 * The lock requires a real Postgres session, so the connection must not use a pooler in transaction mode.
 */
import pg from 'pg';
import type { Logger } from '../telemetry/logger.ts';
import { pause } from '../timeouts/backoff.ts';
import { poll } from '../timeouts/poll.ts';
import { type PostgresAddress, parsePostgresAddress } from './address.ts';
import { toDatabaseError } from './database-error.ts';

export interface SessionLockOptions {
  /** Address of the form `postgres://user:password@host:port/database`. */
  readonly url: string;
  /** Trusted CA certificates, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  /** Lock key that nothing else in this database uses. */
  readonly key: number;
  readonly logger: Logger;
  /** How long to wait for the previous holder. Default 5 s. */
  readonly waitMs?: number;
}

export interface SessionLock {
  /** Resolves if another process has taken the lock while the connection was broken. */
  readonly lost: Promise<void>;
  release(): Promise<void>;
}

const retryMs = 100;

interface Session {
  readonly client: pg.Client;
  readonly broken: Promise<void>;
}

/** Identifies a Postgres session, even if its process id is reused later. */
interface SessionName {
  readonly pid: number;
  readonly started_at: string;
}

/** Takes the lock. @returns undefined if another process holds it. @throws errors of {@link toDatabaseError}. */
export async function acquireSessionLock(options: SessionLockOptions): Promise<SessionLock | undefined> {
  const { key, logger, waitMs = 5_000 } = options;
  const address = parsePostgresAddress(options.url, options.authorities);
  let isReleased = false;
  const earlier: SessionName[] = [];
  let session = await connect(address, earlier).catch((raw) => {
    throw toDatabaseError(raw);
  });
  try {
    if (!(await poll(() => tryLock(session, key), { intervalMs: retryMs, timeoutMs: waitMs }))) {
      await session.client.end();
      return undefined;
    }
  } catch (raw) {
    await session.client.end().catch(() => undefined);
    throw toDatabaseError(raw);
  }

  /**
   * Steps 2 and 3 of the header comment: reconnects and takes the lock again. @returns whether this process holds it.
   */
  async function reacquire(): Promise<boolean> {
    for (;;) {
      if (isReleased) return true;
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
        if (held && !isReleased) session = next;
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
      if (isReleased) return;
      logger.warn('lost the Postgres connection that holds the lock of this process');
      if (!(await reacquire())) return;
    }
  }

  const keepLoop = keep();
  return {
    lost: keepLoop.then(() => (isReleased ? new Promise<void>(() => undefined) : undefined)),
    async release() {
      isReleased = true;
      await session.client.end().catch(() => undefined);
      await keepLoop;
    },
  };
}

/** Connects, and adds the session to `names`. */
async function connect(address: PostgresAddress, names: SessionName[]): Promise<Session> {
  const client = new pg.Client({
    ...address,
    application_name: 'runlake lock',
    connectionTimeoutMillis: 5_000,
    query_timeout: 10_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 5_000,
  });
  const connectionLost = new Promise<void>((resolve) => {
    client.once('end', resolve);
    // Without a listener, an error would crash the process. The event `end` follows.
    client.on('error', () => resolve());
  });
  try {
    await client.connect();
    // If this machine disappears without closing the connection, keep-alive probes let Postgres detect it.
    await client.query('SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3');
    const { rows } = await client.query<SessionName>(
      'SELECT pid, backend_start::text AS started_at FROM pg_stat_activity WHERE pid = pg_backend_pid()',
    );
    names.push(rows[0]!);
    return { client, broken: connectionLost };
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
}

async function tryLock({ client }: Session, key: number): Promise<boolean> {
  const { rows } = await client.query<{ held: boolean }>('SELECT pg_try_advisory_lock($1) AS held', [key]);
  return rows[0]?.held === true;
}

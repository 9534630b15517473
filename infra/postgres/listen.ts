/**
 * Hears what transactions tell with `pg_notify`, on a connection of its own.
 *
 * Invariant: after a notice was committed, `onNotice` is called for its channel at least once: what is missed while there is no
 * connection is made up for by a call for each channel when there is one again.
 *
 *   1. Connect, LISTEN to all channels, then call `onNotice` for each with no payload: whoever looks then misses nothing.
 *   2. Hand notices on.
 *   3. The connection breaks: wait a little, longer each time, and begin anew.
 */
import pg from 'pg';
import type { Logger } from '../telemetry/logger.ts';
import { postgresAddress } from './address.ts';

export interface ListenOptions {
  /** A session of its own: no transaction pooler in between. */
  readonly url: string;
  readonly authorities?: readonly string[] | undefined;
  readonly channels: readonly string[];
  /** `payload` is empty where notices may have been missed. */
  readonly onNotice: (channel: string, payload: string) => void;
  readonly logger: Logger;
}

export interface Listener {
  close(): Promise<void>;
}

const longestPauseMs = 5_000;
/** A connection whose other end is gone without a word is found out by this. */
const probeEveryMs = 15_000;
const answerWithinMs = 10_000;

/** Resolves when it listens, or when the first attempt failed and others follow. */
export async function listen({ url, authorities, channels, onNotice, logger }: ListenOptions): Promise<Listener> {
  let closed = false;
  let client: pg.Client | undefined;
  let timer: NodeJS.Timeout | undefined;
  let probe: NodeJS.Timeout | undefined;
  let failures = 0;

  async function connect(): Promise<void> {
    const opened = new pg.Client({
      ...postgresAddress(url, authorities),
      application_name: 'runlake',
      keepAlive: true,
      connectionTimeoutMillis: answerWithinMs,
      query_timeout: answerWithinMs,
    });
    client = opened;
    opened.on('error', (err) => again(opened, err));
    opened.on('end', () => again(opened));
    opened.on('notification', ({ channel, payload }) => onNotice(channel, payload ?? ''));
    try {
      await opened.connect();
      await opened.query(channels.map((channel) => `LISTEN ${pg.escapeIdentifier(channel)}`).join('; '));
    } catch (err) {
      again(opened, err);
      return;
    }
    // Closed meanwhile.
    if (client !== opened) return;
    failures = 0;
    probe = setInterval(() => void opened.query('SELECT 1').catch((err) => again(opened, err)), probeEveryMs);
    for (const channel of channels) onNotice(channel, '');
  }

  function again(broken: pg.Client, err?: unknown): void {
    if (client !== broken) return;
    client = undefined;
    clearInterval(probe);
    void broken.end().catch(() => undefined);
    if (closed) return;
    if (failures++ === 0)
      logger.warn({ err }, 'the connection that hears notices of Postgres was lost: connecting again');
    timer = setTimeout(() => void connect(), Math.min(50 * 2 ** failures, longestPauseMs));
  }

  await connect();
  return {
    async close() {
      closed = true;
      clearTimeout(timer);
      clearInterval(probe);
      const open = client;
      client = undefined;
      await open?.end().catch(() => undefined);
    },
  };
}

/**
 * Receives Postgres notifications (`pg_notify`) on a dedicated connection.
 *
 * Invariant: after a notification is committed, `onNotice` is called for its channel at least once. Notifications may
 * be missed while there is no connection, so after a reconnect it is called once for each channel.
 *
 *   1. Connect, LISTEN to all channels, then call `onNotice` for each channel with an empty payload, so that the caller
 *      reads the current state.
 *   2. Pass notifications to `onNotice`.
 *   3. If the connection breaks, wait with exponential backoff and start again at step 1.
 */
import pg from 'pg';
import type { Logger } from '../telemetry/logger.ts';
import { computeBackoffMs } from '../timeouts/backoff.ts';
import { parsePostgresAddress } from './address.ts';

export interface ListenOptions {
  /** Address of Postgres; must not go through a pooler in transaction mode. */
  readonly url: string;
  readonly authorities?: readonly string[] | undefined;
  readonly channels: readonly string[];
  /** Called for each notification. `payload` is empty if notifications may have been missed. */
  readonly onNotice: (channel: string, payload: string) => void;
  readonly logger: Logger;
}

export interface Listener {
  close(): Promise<void>;
}

const minPauseMs = 50;
const maxPauseMs = 5_000;
/** Probes detect connections whose peer has disappeared without closing them. */
const probeIntervalMs = 15_000;
const responseTimeoutMs = 10_000;

/**
 * Resolves when the connection listens, or after the first attempt has failed. Further attempts then run in the
 * background.
 */
export async function listen({ url, authorities, channels, onNotice, logger }: ListenOptions): Promise<Listener> {
  let address: ReturnType<typeof parsePostgresAddress> | undefined;
  let isClosed = false;
  let client: pg.Client | undefined;
  let timer: NodeJS.Timeout | undefined;
  let probe: NodeJS.Timeout | undefined;
  let failures = 0;

  /** A certificate may have been replaced. While it is replaced, its file may be missing: the former one is used. */
  function readAddress(): void {
    try {
      address = parsePostgresAddress(url, authorities);
    } catch (error) {
      if (address === undefined) throw error;
    }
  }

  async function connect(): Promise<void> {
    readAddress();
    const opened = new pg.Client({
      ...address,
      application_name: 'runlake',
      keepAlive: true,
      connectionTimeoutMillis: responseTimeoutMs,
      query_timeout: responseTimeoutMs,
    });
    client = opened;
    opened.on('error', (err) => reconnect(opened, err));
    opened.on('end', () => reconnect(opened));
    opened.on('notification', ({ channel, payload }) => onNotice(channel, payload ?? ''));
    try {
      await opened.connect();
      await opened.query(channels.map((channel) => `LISTEN ${pg.escapeIdentifier(channel)}`).join('; '));
    } catch (err) {
      reconnect(opened, err);
      return;
    }
    // The listener was closed meanwhile.
    if (client !== opened) return;
    failures = 0;
    probe = setInterval(() => void opened.query('SELECT 1').catch((err) => reconnect(opened, err)), probeIntervalMs);
    for (const channel of channels) onNotice(channel, '');
  }

  function reconnect(brokenClient: pg.Client, err?: unknown): void {
    if (client !== brokenClient) return;
    client = undefined;
    clearInterval(probe);
    void brokenClient.end().catch(() => undefined);
    if (isClosed) return;
    if (failures++ === 0) logger.warn({ err }, 'lost the connection for Postgres notifications, reconnecting');
    timer = setTimeout(() => void connect(), computeBackoffMs(failures, minPauseMs, maxPauseMs));
  }

  await connect();
  return {
    async close() {
      isClosed = true;
      clearTimeout(timer);
      clearInterval(probe);
      const open = client;
      client = undefined;
      await open?.end().catch(() => undefined);
    },
  };
}

import { randomUUID } from 'node:crypto';
import { settlesBeforeTimeout } from '../timeouts/with-timeout.ts';
import type { Database } from './database.ts';
import { type ListenOptions, listen } from './listen.ts';

/**
 * Resolves with true if a `pg_notify` of one connection arrives at another connection within `withinMs`. A pooler in
 * transaction mode drops notifications.
 * @throws the errors of the database.
 */
export async function noticesArrive(
  database: Database,
  at: Pick<ListenOptions, 'url' | 'authorities' | 'logger'>,
  withinMs: number,
): Promise<boolean> {
  const channel = `runlake_try_${randomUUID()}`;
  let received!: () => void;
  const notice = new Promise<void>((resolve) => {
    received = resolve;
  });
  const onNotice = (_channel: string, payload: string) => {
    if (payload === 'arrived') received();
  };
  const listener = await listen({ ...at, channels: [channel], onNotice });
  try {
    await database.execute('SELECT pg_notify($1, $2)', [channel, 'arrived']);
    return await settlesBeforeTimeout(notice, withinMs);
  } finally {
    await listener.close();
  }
}

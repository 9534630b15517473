import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Database } from './database.ts';
import { type ListenOptions, listen } from './listen.ts';

/**
 * Whether what one connection tells with `pg_notify` is heard on another within `withinMs`; a pooler in transaction mode between them
 * loses it. @throws what the database throws.
 */
export async function noticesArrive(
  database: Database,
  at: Pick<ListenOptions, 'url' | 'authorities' | 'logger'>,
  withinMs: number,
): Promise<boolean> {
  const channel = `runlake_try_${randomUUID()}`;
  let heard!: (value: boolean) => void;
  const notice = new Promise<boolean>((resolve) => {
    heard = resolve;
  });
  const onNotice = (_channel: string, payload: string) => {
    if (payload === 'told') heard(true);
  };
  const listener = await listen({ ...at, channels: [channel], onNotice });
  try {
    await database.execute('SELECT pg_notify($1, $2)', [channel, 'told']);
    return await Promise.race([notice, pause(withinMs, false, { ref: false })]);
  } finally {
    await listener.close();
  }
}

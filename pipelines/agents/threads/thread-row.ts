import type { Thread, TtlStrategy } from './thread.ts';

/** Columns of `agents.threads` that every response contains; they have the names of the fields. */
export const shownColumns =
  'thread_id, created_at, updated_at, state_updated_at, metadata, status, config, values, interrupts, error';

/** Columns of `agents.threads` that form a {@link Thread}. */
export const threadColumns = `${shownColumns}, ttl_strategy, ttl_minutes, expires_at`;

export type ThreadRow = Omit<Thread, 'ttl'> & {
  readonly ttl_strategy: TtlStrategy | null;
  readonly ttl_minutes: number | null;
  readonly expires_at: string | null;
};

export function toThread({ ttl_strategy: strategy, ttl_minutes, expires_at, ...thread }: ThreadRow): Thread {
  if (strategy === null || ttl_minutes === null || expires_at === null) return thread;
  return { ...thread, ttl: { strategy, ttl_minutes, expires_at } };
}

import { setTimeout as pause } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import { findLastEvent } from './find-feedback.ts';

/** Longer than an event usually takes from the log to ClickHouse. */
const retentionMs = 120_000;
const maxBytes = 32 * 1024 * 1024;
const pollIntervalMs = 50;

/** Feedback that this process sent recently: it may not be stored yet, and the next change is based on it. */
export class RecentFeedback {
  readonly #events = new LRUCache<string, FeedbackEvent>({
    ttl: retentionMs,
    maxSize: maxBytes,
    sizeCalculation: estimateBytes,
  });

  /** Call it once the log has accepted the event. */
  remember(event: FeedbackEvent): void {
    this.#events.set(cacheKey(event.tenantId, event.id), event);
  }

  get(tenantId: string, id: string): FeedbackEvent | undefined {
    return this.#events.get(cacheKey(tenantId, id));
  }
}

export interface LastEventDeps {
  readonly clickhouse: ClickHouse;
  readonly recent: RecentFeedback;
}

/**
 * The last event of one feedback, stored or recently sent by this process; it may be a deletion. If there is none,
 * another process may have sent it, so this polls for up to `waitMs`.
 */
export async function readLastEvent(
  { clickhouse, recent }: LastEventDeps,
  { tenantId, id, waitMs }: { readonly tenantId: string; readonly id: string; readonly waitMs: number },
): Promise<FeedbackEvent | undefined> {
  const deadline = Date.now() + waitMs;
  for (;;) {
    const own = recent.get(tenantId, id);
    const stored = await findLastEvent(clickhouse, tenantId, id);
    const last = own && (stored === undefined || own.receivedAtMicros > stored.receivedAtMicros) ? own : stored;
    if (last !== undefined || Date.now() >= deadline) return last;
    await pause(Math.min(pollIntervalMs, Math.max(1, deadline - Date.now())));
  }
}

const cacheKey = (tenantId: string, id: string) => `${tenantId}:${id}`;

function estimateBytes(event: FeedbackEvent): number {
  const { score, value, comment, correction, source, extra } = event;
  return [score, value, comment, correction, source, extra].reduce((sum, bytes) => sum + (bytes?.length ?? 0), 1_000);
}

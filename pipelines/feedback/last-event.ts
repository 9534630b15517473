import { setTimeout as pause } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import { findLastEvent } from './find-feedback.ts';

/** Longer than the log takes as a rule to bring an event into the store. */
const rememberedMs = 120_000;
const rememberedBytes = 32 * 1024 * 1024;
const pollMs = 50;

/** Feedback that this process sent lately: the store may not have it yet, and the next change builds on it. */
export class RecentFeedback {
  readonly #events = new LRUCache<string, FeedbackEvent>({
    ttl: rememberedMs,
    maxSize: rememberedBytes,
    sizeCalculation: sizeOf,
  });

  /** To be called once the log has the event. */
  remember(event: FeedbackEvent): void {
    this.#events.set(keyOf(event.tenantId, event.id), event);
  }

  get(tenantId: string, id: string): FeedbackEvent | undefined {
    return this.#events.get(keyOf(tenantId, id));
  }
}

export interface LastEventPorts {
  readonly warehouse: Warehouse;
  readonly recent: RecentFeedback;
}

/**
 * The last event of one feedback, of those that this process sent and those that are stored; it may be its deletion.
 * Where there is none, it may be on its way from another process, and is waited for.
 */
export async function lastEventOf(
  { warehouse, recent }: LastEventPorts,
  { tenantId, id, waitMs }: { readonly tenantId: string; readonly id: string; readonly waitMs: number },
): Promise<FeedbackEvent | undefined> {
  const deadline = Date.now() + waitMs;
  for (;;) {
    const own = recent.get(tenantId, id);
    const stored = await findLastEvent(warehouse, tenantId, id);
    const last = own && (stored === undefined || own.receivedAtMicros > stored.receivedAtMicros) ? own : stored;
    if (last !== undefined || Date.now() >= deadline) return last;
    await pause(Math.min(pollMs, Math.max(1, deadline - Date.now())));
  }
}

const keyOf = (tenantId: string, id: string) => `${tenantId}:${id}`;

function sizeOf(event: FeedbackEvent): number {
  const { score, value, comment, correction, source, extra } = event;
  return [score, value, comment, correction, source, extra].reduce((sum, bytes) => sum + (bytes?.length ?? 0), 1_000);
}

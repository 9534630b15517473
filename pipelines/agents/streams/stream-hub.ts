import { setTimeout as pause } from 'node:timers/promises';
import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import type { EventLog } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { readAttemptFate } from '../../streams/read-attempt-fate.ts';
import { readRunStream } from '../../streams/read-run-stream.ts';
import { readThreadStream } from '../../streams/read-thread-stream.ts';
import { type FollowedStream, FollowingReader } from './following-reader.ts';
import { PlaceInRun, PlaceInThread } from './reading-place.ts';
import { RecentRecords } from './recent-records.ts';
import { StoredWatch } from './stored-watch.ts';
import type { StreamHub } from './stream-ports.ts';

export interface StreamHubOptions {
  readonly log: Pick<EventLog, 'tail' | 'stored' | 'position'>;
  readonly warehouse: Warehouse;
  /** Whose streams are read here. */
  readonly deploymentId: string;
  /** What recent records may take up. Default: 64 MiB. */
  readonly recentBytes?: number;
  /** How long the storing of what is older than the recent records is waited for. Default: 10 s. */
  readonly patienceMs?: number;
  /** How long a hole in a stream is waited for; longer than until another attempt begins where a process died. Default: as the other. */
  readonly holePatienceMs?: number;
}

/** Longer than a stream can be resumed after its end, and than the sink is usually behind. */
const recentAgeMs = 150_000;
/** Of whose attempts the latest is remembered. */
const recentRuns = 20_000;
const dropOldEveryMs = 10_000;
const page = { limitRows: 2_000, limitBytes: 2 * 1024 * 1024 };
const askEveryMs = 20;

/**
 * The readers of this process, over one tail of the log. Resolves when the tail has caught up.
 * @throws what the log throws where it cannot be read.
 */
export async function openStreamHub(options: StreamHubOptions): Promise<StreamHub> {
  const {
    log,
    warehouse,
    deploymentId: own,
    recentBytes = 64 * 1024 * 1024,
    patienceMs = 10_000,
    holePatienceMs = patienceMs,
  } = options;
  const recent = new RecentRecords({ bytes: recentBytes, ageMs: recentAgeMs, runs: recentRuns });
  const ownKeys = `${own}:`;
  const tail = await log.tail(streamEvents, {
    sinceMs: recentAgeMs,
    // The topic has the records of all deployments: those of others must not evict ours.
    onRecords: (records) => recent.add(records.filter(({ key }) => key.startsWith(ownKeys))),
  });
  recent.beginAt(tail.from);
  const stored = new StoredWatch(log);
  const readers = new Set<FollowingReader>();
  const dropping = setInterval(() => recent.dropOld(), dropOldEveryMs).unref();

  async function arrived(signal: AbortSignal): Promise<void> {
    const startedAtMs = performance.now();
    const position = await log.position(streamEvents).catch(() => ({}));
    while (!tail.passed(position) && !signal.aborted && performance.now() - startedAtMs < patienceMs) {
      await pause(askEveryMs);
    }
  }

  function follow(
    { deploymentId, threadId }: { readonly deploymentId: string; readonly threadId: string },
    stream: Pick<FollowedStream, 'place' | 'fromStored' | 'runId' | 'readPage'>,
  ) {
    const reader: FollowingReader = new FollowingReader({
      ...stream,
      key: `${deploymentId}:${threadId}`,
      recent,
      stored,
      patienceMs,
      holePatienceMs,
      arrived,
      fateOf: ({ runId, attempt }, signal) =>
        readAttemptFate(warehouse, { deploymentId, threadId, runId, attempt, signal }),
      onClosed: () => readers.delete(reader),
    });
    readers.add(reader);
    return reader;
  }

  return {
    async readRun({ deploymentId, threadId, runId }, from) {
      const place = new PlaceInRun(from);
      return follow(
        { deploymentId, threadId },
        {
          place,
          fromStored: from !== 'now',
          runId,
          readPage: (signal) =>
            readRunStream(warehouse, { deploymentId, threadId, runId, after: place.after, ...page, signal }),
        },
      );
    },
    async readThread({ deploymentId, threadId }, from) {
      const place = new PlaceInThread(from);
      return follow(
        { deploymentId, threadId },
        {
          place,
          fromStored: from !== 'now',
          runId: undefined,
          readPage: (signal) =>
            readThreadStream(warehouse, { deploymentId, threadId, after: place.after, ...page, signal }),
        },
      );
    },
    async close() {
      clearInterval(dropping);
      for (const reader of readers) reader.close();
      await tail.close();
    },
  };
}

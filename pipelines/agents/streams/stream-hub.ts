import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { EventLog, LogPosition } from '../../../infra/event-log/event-log.ts';
import { poll } from '../../../infra/timeouts/poll.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { readAttemptOutcome, readRunStream, readThreadStream } from '../../streams/read-streams.ts';
import { OpenStarts, RunPosition, ThreadPosition } from './read-position.ts';
import { decodeRecord, RecordRingBuffer } from './ring-buffer.ts';
import { type FollowedStream, StoredPositionTracker, StreamSubscription } from './stream-subscription.ts';
import { endSeq, type StreamHub, toThreadSeq } from './stream-types.ts';

export interface StreamHubOptions {
  readonly log: Pick<EventLog, 'follow' | 'isStored' | 'position'>;
  readonly clickhouse: ClickHouse;
  /** Deployment whose streams this process serves. */
  readonly deploymentId: string;
  /** Size limit of the ring buffer. Default: 64 MiB. */
  readonly ringBufferBytes?: number;
  /**
   * Maximum time to wait until older events are stored, and until the follower reaches the end of the log. Default: 10
   * s.
   */
  readonly storeTimeoutMs?: number;
  /**
   * Maximum time to wait until a gap in a stream is filled. It must exceed the time that a new attempt needs to start
   * after a process has died. Default: `storeTimeoutMs`.
   */
  readonly gapTimeoutMs?: number;
}

/**
 * Maximum age of buffered records. It exceeds both the time during which clients can resume an ended stream and the
 * usual lag of the sink.
 */
const maxRecordAgeMs = 150_000;
/** Number of runs whose latest attempt is remembered. */
const maxRememberedRuns = 20_000;
const evictionIntervalMs = 10_000;
const pageLimits = { limitRows: 2_000, limitBytes: 2 * 1024 * 1024 };
const pollIntervalMs = 20;

/**
 * Opens the stream hub of this process. All its readers share one follower of the topic. Resolves when the follower has
 * caught up.
 *
 * @throws errors of the log if it cannot be read.
 */
export async function openStreamHub(options: StreamHubOptions): Promise<StreamHub> {
  const {
    log,
    clickhouse,
    deploymentId: own,
    ringBufferBytes = 64 * 1024 * 1024,
    storeTimeoutMs = 10_000,
    gapTimeoutMs = storeTimeoutMs,
  } = options;
  const ringBuffer = new RecordRingBuffer({ bytes: ringBufferBytes, ageMs: maxRecordAgeMs, runs: maxRememberedRuns });
  const deploymentKeyPrefix = `${own}:`;
  const tail = await log.follow(streamEvents, {
    sinceMs: maxRecordAgeMs,
    // The topic contains the records of all deployments. Skip those of other deployments, because they would evict
    // records of this deployment.
    onRecords: (records) => ringBuffer.add(records.filter(({ key }) => key.startsWith(deploymentKeyPrefix))),
  });
  ringBuffer.setStartPosition(tail.from);
  const stored = new StoredPositionTracker(log);
  const readers = new Set<StreamSubscription>();
  const evictionTimer = setInterval(() => ringBuffer.evictExpiredRecords(), evictionIntervalMs).unref();

  /** Waits until the follower has delivered all records that are in the log now. @returns whether it has. */
  async function waitForLogEnd(signal: AbortSignal): Promise<boolean> {
    let position: LogPosition | undefined;
    const hasArrived = async () => {
      position ??= await log.position(streamEvents).catch(() => undefined);
      return position !== undefined && tail.hasDelivered(position);
    };
    return poll(hasArrived, { intervalMs: pollIntervalMs, timeoutMs: storeTimeoutMs, signal });
  }

  function follow(
    { deploymentId, threadId }: { readonly deploymentId: string; readonly threadId: string },
    stream: Pick<FollowedStream, 'position' | 'includesStored' | 'runId' | 'readPage'>,
  ) {
    const reader: StreamSubscription = new StreamSubscription({
      ...stream,
      key: `${deploymentId}:${threadId}`,
      ringBuffer,
      stored,
      storeTimeoutMs,
      gapTimeoutMs,
      arrived: waitForLogEnd,
      readAttemptOutcome: ({ runId, attempt }, signal) =>
        readAttemptOutcome(clickhouse, { deploymentId, threadId, runId, attempt, signal }),
      onClosed: () => readers.delete(reader),
    });
    readers.add(reader);
    return reader;
  }

  return {
    async readRun({ deploymentId, threadId, runId }, from) {
      const position = new RunPosition(from);
      return follow(
        { deploymentId, threadId },
        {
          position,
          includesStored: from !== 'now',
          runId,
          readPage: (signal) =>
            readRunStream(clickhouse, { deploymentId, threadId, runId, after: position.after, ...pageLimits, signal }),
        },
      );
    },
    async readThread({ deploymentId, threadId, earlierStarts }, from) {
      const position = new ThreadPosition(from, earlierStarts);
      return follow(
        { deploymentId, threadId },
        {
          position,
          includesStored: from !== 'now',
          runId: undefined,
          readPage: (signal) =>
            readThreadStream(clickhouse, { deploymentId, threadId, ...position.unread, ...pageLimits, signal }),
        },
      );
    },
    listOpenStarts({ deploymentId, threadId }, threadSeq) {
      const openStarts = new OpenStarts('now');
      for (const record of ringBuffer.list(`${deploymentId}:${threadId}`)) {
        const event = decodeRecord(record);
        if (event !== undefined) openStarts.record(event);
        if (event?.threadSeq === threadSeq) break;
      }
      // The event may also be an end that is not in the log yet.
      return [...openStarts].filter((start) => toThreadSeq(start, endSeq) <= threadSeq);
    },
    async close() {
      clearInterval(evictionTimer);
      for (const reader of readers) reader.close();
      await tail.close();
    },
  };
}

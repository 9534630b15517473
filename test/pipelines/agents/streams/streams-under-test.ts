import { loadConfig } from '../../../../infra/config/load.ts';
import type { EventLog } from '../../../../infra/event-log/event-log.ts';
import { openInProcessLog } from '../../../../infra/event-log/in-process/in-process-log.ts';
import {
  createStreamPublisher,
  type StreamPublisherOptions,
} from '../../../../pipelines/agents/streams/create-stream-publisher.ts';
import { openStreamHub, type StreamHubOptions } from '../../../../pipelines/agents/streams/stream-hub.ts';
import type {
  RunStreamStart,
  StreamedEvent,
  StreamHub,
  StreamPublisher,
  StreamReader,
} from '../../../../pipelines/agents/streams/stream-types.ts';
import type { Chunk } from '../../../../pipelines/agents/workers/messages.ts';
import { Sink } from '../../../../pipelines/ingest/sink/sink.ts';
import { streamEvents, topics } from '../../../../schemas/topics.ts';
import { untilStored } from '../../../engines/settling.ts';
import { type FreshStores, freshStores } from '../../../engines/stores.ts';
import { logger } from '../../../silent-logger.ts';
import { deriveUuid } from '../../runs/run-events.ts';

export interface StreamsUnderTest {
  readonly stores: FreshStores;
  readonly log: EventLog;
  publisher(options?: Partial<StreamPublisherOptions>): StreamPublisher;
  hub(options?: Partial<StreamHubOptions>): Promise<StreamHub>;
  /** Resolves when all published events are stored. */
  stored(): Promise<void>;
  /** Makes the next inserts fail before they store anything. */
  failInserts(count: number): void;
  /** Makes inserts wait until `release`, the returned function, is called. */
  holdInserts(): () => void;
  close(): Promise<void>;
}

/** Opens log, sink and ClickHouse; `close` also closes hubs that are still open. */
export async function openStreams(
  openLog: (stores: FreshStores) => Promise<EventLog> = openInProcess,
): Promise<StreamsUnderTest> {
  const stores = await freshStores();
  const log = await openLog(stores);
  const hubs: StreamHub[] = [];
  let failing = 0;
  let heldInserts: Promise<void> = Promise.resolve();
  const clickhouse = {
    ...stores.clickhouse,
    async insertBody(insert: Parameters<typeof stores.clickhouse.insertBody>[0]) {
      await heldInserts;
      if (failing > 0) {
        failing--;
        throw new Error('this insert was made to fail');
      }
      await stores.clickhouse.insertBody(insert);
    },
  };
  const { config } = loadConfig({});
  const sink = new Sink({ log, clickhouse, database: stores.database, config, logger, onHoursMarked: () => {} });
  await sink.start([streamEvents]);
  return {
    stores,
    log,
    publisher: (options = {}) => createStreamPublisher({ log, retentionMs: 86_400_000, ...options }),
    async hub(options = {}) {
      const hub = await openStreamHub({
        log,
        clickhouse: stores.clickhouse,
        deploymentId: testDeploymentId,
        ...options,
      });
      hubs.push(hub);
      return hub;
    },
    stored: () => untilStored(log, streamEvents),
    failInserts: (count) => {
      failing = count;
    },
    holdInserts() {
      let release = () => {};
      heldInserts = new Promise((resolve) => {
        release = resolve;
      });
      return release;
    },
    async close() {
      await Promise.all(hubs.map((hub) => hub.close()));
      await log.close();
      sink.stop();
      await stores.close();
    },
  };
}

function openInProcess({ clickhouse, database }: FreshStores): Promise<EventLog> {
  return openInProcessLog({ clickhouse, database, topics, partitions: 2, maxPendingBytes: 2 ** 28, logger });
}

let runs = 0;
const testDeploymentId = deriveUuid('organization of streams');

/** Returns a run, by default on a new thread. */
export function newRun(given: Partial<RunStreamStart> = {}): RunStreamStart {
  runs++;
  return {
    deploymentId: testDeploymentId,
    threadId: deriveUuid('thread of streams', runs),
    runId: deriveUuid('run of streams', runs),
    attempt: 1,
    threadStart: 1,
    kept: true,
    ...given,
  };
}

export const chunk = (text: string, extraBytes = 0): Chunk => ({
  mode: 'custom',
  event: 'custom',
  namespace: '',
  data: Buffer.from(JSON.stringify({ text, extra: 'x'.repeat(extraBytes) })),
});

export const makeRunEnd = (start: RunStreamStart, status = 'success') => ({
  ...start,
  data: Buffer.from(JSON.stringify({ status })),
  endedAtMicros: 1_800_000_000_000_000,
});

export const idOf = ({ attempt, seq, isEnd }: Pick<StreamedEvent, 'attempt' | 'seq' | 'isEnd'>) =>
  isEnd ? `${attempt}-end` : `${attempt}-${seq}`;

/**
 * Yields the events of a reader, by iteration and, if `usesReady` returns true, by `ready` between two iteration steps.
 */
export async function* iterateReader(reader: StreamReader, usesReady = () => true): AsyncGenerator<StreamedEvent> {
  for await (const event of reader) {
    yield event;
    while (usesReady()) {
      const next = reader.ready?.();
      if (next === undefined) break;
      yield next;
    }
  }
}

/** Returns all events of a reader until it ends. */
export async function all(reader: StreamReader): Promise<StreamedEvent[]> {
  const events: StreamedEvent[] = [];
  for await (const event of reader) events.push(event);
  return events;
}

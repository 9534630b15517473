import type { ClickHouse } from '../../../../infra/clickhouse/clickhouse.ts';
import { loadConfig } from '../../../../infra/config/load.ts';
import type { Config } from '../../../../infra/config/settings.ts';
import {
  computeRecordVersion,
  type EventLog,
  type LogMessage,
  type LogRecord,
  type Subscription,
} from '../../../../infra/event-log/event-log.ts';
import { openInProcessLog } from '../../../../infra/event-log/in-process/in-process-log.ts';
import { Sink } from '../../../../pipelines/ingest/sink/sink.ts';
import { topics as allTopics, type Topic } from '../../../../schemas/topics.ts';
import { type FreshStores, freshStores } from '../../../engines/stores.ts';
import { logger } from '../../../silent-logger.ts';

export interface ManualSink {
  readonly stores: FreshStores;
  readonly log: EventLog;
  /** Delivers `records` to the sink as one batch, like a log that has these records at their offsets. */
  deliver(topic: Topic, records: readonly LogRecord[]): Promise<void>;
  /** Makes the next insert fail: before anything is stored, or after everything is stored. */
  failNextInsert(when: 'before' | 'after'): void;
  close(): Promise<void>;
}

export interface ManualSinkOptions {
  readonly config?: Partial<Config>;
  readonly topics?: readonly Topic[];
  /** Schema ids of the log in addition to those of `topics`. */
  readonly schemas?: Readonly<Record<number, string>>;
  /** Whether other processes consume the log, too. */
  readonly isShared?: boolean;
  /** Default: separate stores, which are removed when the sink is closed. */
  readonly stores?: FreshStores;
}

/** Opens a sink on real stores; the test controls its offsets, batches and repeats. */
export async function openDrivenSink(options: ManualSinkOptions = {}): Promise<ManualSink> {
  const { config = {}, topics = allTopics, schemas = {} } = options;
  const stores = options.stores ?? (await freshStores());
  const { clickhouse: stored, database } = stores;
  const real = await openInProcessLog({
    clickhouse: stored,
    database,
    topics,
    partitions: 1,
    maxPendingBytes: 2 ** 28,
    logger,
  });
  const handlers = new Map<string, Subscription['handle']>();
  const log = overrideLog(real, {
    getSchema: async (id) => schemas[id] ?? (await real.getSchema(id)),
    subscribe: async (to) => void handlers.set(to.topic.name, to.handle),
    isExclusive: !options.isShared,
  });
  let failing: 'before' | 'after' | undefined;
  const clickhouse: ClickHouse = {
    ...stores.clickhouse,
    async insertBody(insert) {
      if (insert.table === 'event_versions') return stores.clickhouse.insertBody(insert);
      const now = failing;
      failing = undefined;
      if (now !== 'before') await stores.clickhouse.insertBody(insert);
      if (now !== undefined) throw new Error('this insert was made to fail');
    },
  };
  const sink = new Sink({
    log,
    clickhouse,
    database,
    config: { ...loadConfig({}).config, maxRunAgeDays: 3_000, ...config },
    logger,
    onHoursMarked: () => {},
  });
  await sink.start(topics);
  return {
    stores,
    log,
    async deliver(topic, records) {
      const partition = records[0]?.partition ?? 0;
      await handlers.get(topic.name)?.({ topic, partition, records });
    },
    failNextInsert: (when) => {
      failing = when;
    },
    async close() {
      sink.stop();
      await real.close();
      if (options.stores === undefined) await stores.close();
    },
  };
}

/** Returns a log with other members in place of some of its own. */
export function overrideLog(real: EventLog, members: Partial<EventLog>): EventLog {
  return new Proxy<EventLog>(real, {
    get(target, name: keyof EventLog) {
      const member = name in members ? members[name] : target[name];
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
}

/** Returns messages at consecutive log offsets, starting at `offset`. */
export function toRecordsAtOffset(offset: number, messages: readonly LogMessage[], partition = 0): LogRecord[] {
  return messages.map((message, index) => ({
    headers: {},
    ...message,
    partition,
    offset: offset + index,
    version: computeRecordVersion(1, offset + index, {}),
  }));
}

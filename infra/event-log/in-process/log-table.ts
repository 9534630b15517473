/**
 * The table `event_log` of ClickHouse: the events of the in-process log that its consumers have not stored yet.
 *
 * Invariant: the table contains every record that was appended and not released.
 *
 *   1. `append` inserts records into the open segments of their topics. A segment is a partition of the table.
 *   2. `release` counts the records of a segment that are stored.
 *   3. Every second, the open segments are closed, and the segments without unreleased records are dropped. So the table is
 *      small, and the next process delivers few records again. While the consumers of a topic reject its records, the
 *      segments of other topics are still dropped.
 *   4. ClickHouse may execute an insert after it has failed for this process, and after its segment was dropped, or after
 *      its process has died. None of its records was acknowledged. So for some minutes after a start and after a failed
 *      insert, segments that appear in the table are dropped.
 */
import type { ClickHouse } from '../../clickhouse/clickhouse.ts';
import { runOnEachShard } from '../../clickhouse/layout.ts';
import { RowBinaryReader } from '../../clickhouse/row-binary.ts';
import type { Layout } from '../../clickhouse/settings.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { endSlice } from '../../timeouts/time-slices.ts';
import { AvroContainer, AvroWriter, buildContainerSchema, buildWirePrefix } from '../avro.ts';
import { computePublishTimeoutMs, type LogPosition, type LogRecord } from '../event-log.ts';
import { sumValueBytes } from '../event-log-metrics.ts';

const table = 'event_log';
const prefix = ['segment', 'log_partition', 'log_offset'];
const fields = ['topic', 'organization_id', 'key', 'headers', 'value'];
const recordSchema = {
  type: 'record',
  name: 'LoggedEvent',
  fields: fields.map((name) => ({ name, type: name === 'value' ? 'bytes' : 'string' })),
};
const schema = buildContainerSchema(JSON.stringify(recordSchema), prefix);
/** Records of a container begin with a schema id, which is removed. */
const noSchema = buildWirePrefix(0);
const columns = [...prefix, ...fields];

/** Records of a topic from one request. */
export interface LoggedRecords {
  readonly topic: string;
  /** Id of the organisation. Undefined for Runlake's internal work. */
  readonly tenantId: string | undefined;
  readonly records: readonly Omit<LogRecord, 'version'>[];
}

interface RemainingRecord extends Pick<LoggedRecords, 'topic' | 'tenantId'> {
  readonly record: LoggedRecords['records'][number];
}

/** Records of the table that are deleted together. */
export interface Segment {
  readonly id: number;
  unreleased: number;
}

const segmentMs = 1_000;
/** Timeout of a small insert; see {@link computePublishTimeoutMs}. */
const appendTimeoutMs = 10_000;
/** Number of seconds in which ClickHouse responds and late inserts are searched. */
const lateInsertChecks = 300;
/**
 * Time after which ClickHouse has deleted the parts of a dropped segment. Before, it does not forget the segment. Its replicas
 * delete parts every 30 s to five minutes.
 */
const forgetAfterMs = 600_000;

export class LogTable {
  readonly #clickhouse: ClickHouse;
  readonly #logger: Logger;
  readonly #segments = new Set<Segment>();
  readonly #timer: NodeJS.Timeout;
  #nextId: number;
  /** Open segments by topic. */
  readonly #open = new Map<string, Segment>();
  #sweeping: Promise<void> | undefined;
  /** Number of remaining checks for late inserts. */
  #lateInsertChecks = 0;
  /** Dropped segments of a replicated table that are to be forgotten, oldest first. */
  readonly #dropped: { readonly id: number; readonly atMs: number }[] = [];

  /** @param firstId id of the first segment; it and all later numbers are unused. */
  constructor(clickhouse: ClickHouse, firstId: number, logger: Logger) {
    this.#clickhouse = clickhouse;
    this.#nextId = firstId;
    this.#logger = logger;
    this.#timer = setInterval(() => void this.#sweep(), segmentMs).unref();
  }

  /** Reads the records that earlier processes have not released, oldest segment first. @throws the errors of ClickHouse. */
  async *readRemaining(): AsyncGenerator<RemainingRecord & { readonly segment: Segment }> {
    for (const id of await this.#listSegments()) {
      const records = await this.#readSegment(id);
      const segment = { id, unreleased: records.length };
      this.#segments.add(segment);
      for (const logged of records) yield { ...logged, segment };
    }
    this.#lateInsertChecks = lateInsertChecks;
  }

  /** Appends records. Resolves with their segments by topic when they are durable. @throws the errors of ClickHouse. */
  async append(logged: readonly LoggedRecords[]): Promise<ReadonlyMap<string, Segment>> {
    const segments = new Map<string, Segment>();
    for (const { topic, records } of logged) {
      const segment = segments.get(topic) ?? this.#openSegment(topic);
      segments.set(topic, segment);
      segment.unreleased += records.length;
    }
    try {
      const body = await encodeRows(segments, logged);
      const insert = { name: 'event-log', table, columns, format: 'Avro', body } as const;
      const timeoutMs = computePublishTimeoutMs(appendTimeoutMs, body.length);
      await this.#clickhouse.insertBody({ ...insert, timeoutMs });
    } catch (error) {
      // The insert may have been executed. Then the next process may deliver these records, or the segment is dropped.
      for (const { topic, records } of logged) this.release(segments.get(topic) as Segment, records.length);
      this.#lateInsertChecks = lateInsertChecks;
      throw error;
    }
    return segments;
  }

  #openSegment(topic: string): Segment {
    const segment = this.#open.get(topic) ?? { id: this.#nextId++, unreleased: 0 };
    this.#open.set(topic, segment);
    this.#segments.add(segment);
    return segment;
  }

  /** Releases records of a segment, because they are stored. */
  release(segment: Segment, records: number): void {
    segment.unreleased -= records;
  }

  /** Drops the segments without unreleased records. No record must be appended afterwards. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#sweeping;
    await this.#sweep();
  }

  #sweep(): Promise<void> {
    this.#sweeping ??= this.#dropReleased().finally(() => {
      this.#sweeping = undefined;
    });
    return this.#sweeping;
  }

  async #dropReleased(): Promise<void> {
    const closed = [...this.#segments];
    this.#open.clear();
    try {
      for (const segment of closed) {
        if (segment.unreleased > 0) continue;
        await this.#dropSegment(segment.id);
        this.#segments.delete(segment);
      }
      if (this.#lateInsertChecks > 0) await this.#dropLateInserts();
      await this.#forgetDropped();
    } catch (error) {
      this.#logger.warn({ err: error }, 'segments of the event log could not be dropped yet');
    }
  }

  /** Executes step 4. */
  async #dropLateInserts(): Promise<void> {
    const next = this.#nextId;
    const stored = (await this.#listSegments()).filter((id) => id < next);
    const known = new Set([...this.#segments].map(({ id }) => id));
    for (const id of stored) if (!known.has(id)) await this.#dropSegment(id);
    this.#lateInsertChecks -= 1;
  }

  async #listSegments(): Promise<number[]> {
    const rows = await this.#clickhouse.query<{ segment: number }>({
      name: 'list-log-segments',
      sql: `SELECT DISTINCT segment FROM ${table} ORDER BY segment`,
    });
    return rows.map(({ segment }) => segment);
  }

  /** Reads bytes: a segment may have more of them than a string can have. The values are views of the response. */
  async #readSegment(segment: number): Promise<RemainingRecord[]> {
    const response = await this.#clickhouse.queryText({
      name: 'read-log-segment',
      sql: `SELECT topic, organization_id, toInt64(log_partition), toInt64(log_offset), key, headers, value
        FROM ${table} WHERE segment = {segment:UInt64} ORDER BY log_offset`,
      params: { segment },
      format: 'RowBinary',
    });
    const reader = new RowBinaryReader(response);
    const readText = () => reader.text().toString('utf8');
    const records: RemainingRecord[] = [];
    while (!reader.isAtEnd) {
      const [topic, tenantId] = [readText(), readText()];
      const position = { partition: reader.int64(), offset: reader.int64() };
      const key = readText();
      const headers = JSON.parse(readText()) as LogRecord['headers'];
      const record = { ...position, key, headers, value: reader.text() };
      records.push({ topic, tenantId: tenantId === '' ? undefined : tenantId, record });
    }
    return records;
  }

  async #dropSegment(segment: number): Promise<void> {
    const atMs = Date.now();
    await runOnEachShard(this.#clickhouse, (stored) => ({
      name: 'drop-log-segment',
      sql: `ALTER TABLE ${stored(table)} DROP PARTITION ${segment}`,
    }));
    if (hasKeeper(await this.#clickhouse.layout())) this.#dropped.push({ id: segment, atMs });
  }

  /** Deletes what Keeper has about the dropped segments: one node each, which would otherwise remain for ever. */
  async #forgetDropped(): Promise<void> {
    while ((this.#dropped[0]?.atMs ?? Number.POSITIVE_INFINITY) <= Date.now() - forgetAfterMs) {
      const { id } = this.#dropped.shift()!;
      // A shard that never had the segment refuses. A node that remains after another error does no harm.
      await runOnEachShard(this.#clickhouse, (stored) => ({
        name: 'forget-log-segment',
        sql: `ALTER TABLE ${stored(table)} FORGET PARTITION ${id}`,
      })).catch(() => undefined);
    }
  }
}

function hasKeeper(layout: Layout): boolean {
  return layout.kind === 'cluster' ? layout.hasKeeper : layout.kind === 'replicated' && !layout.isShared;
}

/** Approximate size of the fields of a row in addition to the value. */
const rowOverheadBytes = 300;

/** Lets the event loop run in between, because a request may have many events. */
async function encodeRows(segments: ReadonlyMap<string, Segment>, logged: readonly LoggedRecords[]): Promise<Buffer> {
  let bytes = 0;
  for (const { records } of logged) bytes += sumValueBytes(records) + rowOverheadBytes * records.length;
  const container = new AvroContainer(schema, bytes);
  const row = new AvroWriter();
  for (const { topic, tenantId = '', records } of logged) {
    const segment = BigInt(segments.get(topic)?.id ?? 0);
    for (const { partition, offset, key, headers, value } of records) {
      row.rewind(0);
      row.raw(noSchema);
      row.string(topic);
      row.string(tenantId);
      row.string(key);
      row.string(JSON.stringify(headers));
      row.bytes(value);
      container.add({ value: row.since(0), prefix: [segment, BigInt(partition), BigInt(offset)] });
      const turn = endSlice();
      if (turn) await turn;
    }
  }
  return container.finish();
}

/**
 * Returns the position after all events of a topic that are in the table, for processes that do not have the log. Every event
 * that the log has acknowledged before the call is before this position or is stored.
 *
 * @throws the errors of ClickHouse.
 */
export async function readLogPosition(clickhouse: ClickHouse, topic: string): Promise<LogPosition> {
  const rows = await clickhouse.query<{ partition: number; end: number }>({
    name: 'read-log-position',
    sql: `SELECT log_partition AS partition, max(log_offset) + 1 AS end FROM ${table} WHERE topic = {topic:String}
      GROUP BY log_partition`,
    params: { topic },
  });
  return Object.fromEntries(rows.map(({ partition, end }) => [partition, end]));
}

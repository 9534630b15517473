import type { RunnableConfig } from '@langchain/core/runnables';
import type {
  Checkpoint,
  CheckpointListOptions,
  CheckpointTuple,
  SerializerProtocol,
} from '@langchain/langgraph-checkpoint';
import { replaceLoneSurrogates } from '../../../infra/json/json-value.ts';
import type { Sql } from '../../../infra/postgres/database.ts';

type ValuePart = readonly [...names: string[], type: string, length: number | null];

/** A row of {@link selectTuplesSql}. `*_parts` describe the values that are concatenated in `*_bytes`. */
export interface StoredTuple {
  readonly thread_id: string;
  readonly checkpoint_ns: string;
  readonly checkpoint_id: string;
  readonly parent_checkpoint_id: string | null;
  readonly checkpoint: Omit<Checkpoint, 'channel_values'>;
  readonly metadata: string;
  readonly blob_parts: readonly ValuePart[] | null;
  readonly blob_bytes: Buffer | null;
  readonly write_parts: readonly ValuePart[] | null;
  readonly write_bytes: Buffer | null;
}

/**
 * Selects checkpoints with the values of their channels and their pending writes. The caller appends WHERE, ORDER BY
 * and LIMIT.
 *
 * The values of a row are concatenated, because the text of an array is ten times slower to read. `LIMIT 1` makes
 * Postgres look up each blob by its key; otherwise it may read all blobs of the thread, which can be a thousand times
 * as many.
 */
export const selectTuplesSql = `
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata::text AS metadata,
  blobs.parts AS blob_parts, blobs.bytes AS blob_bytes, writes.parts AS write_parts, writes.bytes AS write_bytes
FROM agents.checkpoints cp
CROSS JOIN LATERAL (
  SELECT json_agg(json_build_array(b.channel, b.type, length(b.blob)) ORDER BY b.channel) AS parts,
    string_agg(b.blob, '' ORDER BY b.channel) AS bytes
  FROM jsonb_each_text(cp.checkpoint -> 'channel_versions') version
  CROSS JOIN LATERAL (
    SELECT * FROM agents.checkpoint_blobs
    WHERE thread_id = cp.thread_id AND checkpoint_ns = cp.checkpoint_ns
      AND channel = version.key AND checkpoint_blobs.version = version.value
    LIMIT 1
  ) b
) blobs
CROSS JOIN LATERAL (
  SELECT json_agg(json_build_array(w.task_id, w.channel, w.type, length(w.blob)) ORDER BY w.task_id, w.idx) AS parts,
    string_agg(w.blob, '' ORDER BY w.task_id, w.idx) AS bytes
  FROM agents.checkpoint_writes w
  WHERE w.thread_id = cp.thread_id AND w.checkpoint_ns = cp.checkpoint_ns AND w.checkpoint_id = cp.checkpoint_id
) writes
`;

/**
 * Returns the query for the newest checkpoints of a thread. As in the savers of LangGraph, a member that is absent from
 * `configurable` does not restrict the result.
 */
export function buildListQuery(
  { configurable = {} }: RunnableConfig,
  {
    filter = {},
    before,
    limit,
  }: {
    readonly filter: CheckpointListOptions['filter'] | undefined;
    readonly before: RunnableConfig | undefined;
    readonly limit: number;
  },
): { readonly text: string; readonly values: unknown[] } {
  const { thread_id, checkpoint_ns, checkpoint_id } = configurable;
  const conditions: string[] = [];
  const values: unknown[] = [];
  const add = (condition: string, value: unknown) => conditions.push(`${condition} $${values.push(value)}`);
  if (thread_id) add('thread_id =', thread_id);
  if (checkpoint_ns != null) add('checkpoint_ns =', checkpoint_ns);
  if (checkpoint_id) add('checkpoint_id =', checkpoint_id);
  if (Object.keys(filter).length > 0) add('metadata @>', JSON.stringify(filter));
  const beforeId: unknown = before?.configurable?.checkpoint_id;
  if (beforeId !== undefined) add('checkpoint_id <', beforeId);
  const where = conditions.length > 0 ? `WHERE ${conditions.join(' AND ')}` : '';
  return { text: `${selectTuplesSql} ${where} ORDER BY checkpoint_id DESC LIMIT $${values.push(limit)}`, values };
}

/** Converts a row to the tuple that LangGraph expects, with all values deserialised. */
export async function toTuple(serde: SerializerProtocol, row: StoredTuple): Promise<CheckpointTuple> {
  const [values, writes, metadata] = await Promise.all([
    deserialiseValues(serde, row.blob_parts, row.blob_bytes),
    deserialiseValues(serde, row.write_parts, row.write_bytes),
    deserialise(serde, 'json', Buffer.from(row.metadata)),
  ]);
  const channels = values.filter(([, type]) => type !== 'empty').map(([[channel], , value]) => [channel!, value]);
  const { thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id } = row;
  return {
    config: { configurable: { thread_id, checkpoint_ns, checkpoint_id } },
    checkpoint: { ...row.checkpoint, channel_values: Object.fromEntries(channels) },
    metadata: metadata as NonNullable<CheckpointTuple['metadata']>,
    ...(parent_checkpoint_id !== null && {
      parentConfig: { configurable: { thread_id, checkpoint_ns, checkpoint_id: parent_checkpoint_id } },
    }),
    pendingWrites: writes.map(([[task, channel], , value]) => [task!, channel!, value]),
  };
}

function deserialiseValues(serde: SerializerProtocol, parts: readonly ValuePart[] | null, bytes: Buffer | null) {
  let end = 0;
  return Promise.all(
    (parts ?? []).map(async (part) => {
      const [type, length] = part.slice(-2) as [string, number | null];
      const start = end;
      end += length ?? 0;
      const value = type === 'empty' ? undefined : await deserialise(serde, type, bytes!.subarray(start, end));
      return [part.slice(0, -2) as string[], type, value] as const;
    }),
  );
}

/**
 * Deserialises a value. Uses plain `JSON.parse` if the value contains no serialised class instance, because the
 * serializer visits each nested value. A function or symbol is stored as an empty value, because JSON cannot represent
 * it.
 */
async function deserialise(serde: SerializerProtocol, type: string, bytes: Buffer): Promise<unknown> {
  if (type === 'json' && bytes.length === 0) return undefined;
  if (type === 'json' && !bytes.includes('"lc":')) return JSON.parse(bytes.toString());
  try {
    return await serde.loadsTyped(type, bytes);
  } catch (error) {
    if (type !== 'json') throw error;
    return reviveKnown(serde, JSON.parse(bytes.toString()), { bytes: maxRevivals * bytes.length });
  }
}

/** How often the bytes of a value are given to the serializer, at most, if some of its records cannot be created. */
const maxRevivals = 4;

/**
 * Deserialises a value, and keeps records that look like a class instance but cannot be created, and the instances that
 * contain them, as they are. Clients can send such records, and graphs can store instances of classes that LangChain
 * does not load. The serializer of the library throws, which would make the whole thread unreadable.
 *
 * @param budget Bytes that may still be given to the serializer, which reads a record again for each record around it.
 *   All further records stay as they are.
 */
async function reviveKnown(serde: SerializerProtocol, value: unknown, budget: { bytes: number }): Promise<unknown> {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return Promise.all(value.map((each) => reviveKnown(serde, each, budget)));
  if ('lc' in value && budget.bytes > 0) {
    const text = JSON.stringify(value);
    budget.bytes -= text.length;
    try {
      return await serde.loadsTyped('json', text);
    } catch {
      // The record itself or one of its members cannot be created.
    }
  }
  const members = Object.entries(value).map(
    async ([name, member]) => [name, await reviveKnown(serde, member, budget)] as const,
  );
  return Object.fromEntries(await Promise.all(members));
}

/**
 * Finds the run that wrote the newest checkpoint of a thread's root graph; null if it was written outside a run,
 * undefined if the thread has none. `key` is a thread key (`buildThreadKey`).
 */
export async function findHeadRun(sql: Sql, key: string): Promise<string | null | undefined> {
  const [head] = await sql.query<{ runId: string | null }>(
    `SELECT metadata ->> 'run_id' AS "runId" FROM agents.checkpoints
     WHERE thread_id = $1 AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1`,
    [key],
    { name: 'agents_head_checkpoint' },
  );
  return head?.runId;
}

/** Target size of a page of checkpoints. A single checkpoint can be larger. */
const pageBytes = 4 * 1024 * 1024;
const maxPageRows = 64;

/** Chooses the number of rows of the next page from the average row size of the last one. The first page has one row. */
export class AdaptivePageSize {
  #rows = 0;
  #bytes = 0;

  get nextRows(): number {
    if (this.#rows === 0) return 1;
    return Math.max(1, Math.min(maxPageRows, Math.floor((pageBytes * this.#rows) / Math.max(1, this.#bytes))));
  }

  record(rows: readonly Pick<StoredTuple, 'blob_bytes' | 'write_bytes'>[]): void {
    this.#rows = rows.length;
    this.#bytes = 0;
    for (const { blob_bytes, write_bytes } of rows) {
      this.#bytes += (blob_bytes?.length ?? 0) + (write_bytes?.length ?? 0);
    }
  }
}

/** Makes JSON text acceptable to `jsonb`: removes NUL characters and replaces lone surrogates with U+FFFD. */
export function toJsonbText(json: string): string {
  const text = replaceLoneSurrogates(json);
  if (!text.includes('\\u0000')) return text;
  return text.replace(/\\(?:\\|u0000)/g, (found) => (found === '\\\\' ? found : ''));
}

import { type AvroWalk, compileAvroWalk } from '../../../infra/event-log/avro-walk.ts';
import { columnsOf } from '../../../infra/event-log/columns-of-schema.ts';
import type { EventLog, LogRecord } from '../../../infra/event-log/event-log.ts';
import { schemaIdOf } from '../../../infra/event-log/wire-format.ts';
import type { Topic } from '../../../schemas/topics.ts';

/** Schema that records of a topic were written under, of this or another release. */
export interface RecordSchema {
  /** Schema as JSON text. */
  readonly schema: string;
  readonly walk: AvroWalk;
  /** Fields of the schema, which are the columns of the insert; ClickHouse fills other columns with their defaults. */
  readonly columns: readonly string[];
}

/** Caches the compiled schemas of records that were read from the log. */
export class RecordSchemas {
  readonly #log: Pick<EventLog, 'schemaOf'>;
  readonly #byTopic = new Map<Topic, Map<number, RecordSchema>>();

  constructor(log: Pick<EventLog, 'schemaOf'>) {
    this.#log = log;
  }

  /**
   * Known schemas of `topic` by id, among them those of `records`. Ids that the log does not have, and ids of another
   * record type, are missing.
   * @throws what the log throws if it cannot look an id up now.
   */
  async of(topic: Topic, records: readonly LogRecord[]): Promise<ReadonlyMap<number, RecordSchema>> {
    const known = this.#byTopic.get(topic) ?? new Map<number, RecordSchema>();
    this.#byTopic.set(topic, known);
    const seen = new Set<number>();
    for (const { value } of records) {
      const id = schemaIdOf(value);
      if (id === undefined || known.has(id) || seen.has(id)) continue;
      seen.add(id);
      const schema = await this.#log.schemaOf(id);
      const compiled = schema === undefined ? undefined : compile(topic, schema);
      if (compiled) known.set(id, compiled);
    }
    return known;
  }

  /** A schema that {@link RecordSchemas.of} has loaded. */
  get(topic: Topic, id: number): RecordSchema | undefined {
    return this.#byTopic.get(topic)?.get(id);
  }
}

function compile(topic: Topic, schema: string): RecordSchema | undefined {
  const columns = columnsOf(schema, topic);
  return columns && { schema, columns, walk: compileAvroWalk(schema) };
}

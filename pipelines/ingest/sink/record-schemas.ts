import { type AvroWalk, compileAvroWalk } from '../../../infra/event-log/avro-walk.ts';
import { columnsOf } from '../../../infra/event-log/columns-of-schema.ts';
import type { EventLog, LogRecord } from '../../../infra/event-log/event-log.ts';
import { schemaIdOf } from '../../../infra/event-log/wire-format.ts';
import type { Topic } from '../../../schemas/topics.ts';

/** A schema under which records of a topic were written: that of this release, an older or a newer one. */
export interface RecordSchema {
  /** As JSON text. */
  readonly schema: string;
  readonly walk: AvroWalk;
  /** Its fields, which are the columns of an insert: the others take their defaults. */
  readonly columns: readonly string[];
}

/** The schemas of records that passed, compiled once. */
export class RecordSchemas {
  readonly #log: Pick<EventLog, 'schemaOf'>;
  readonly #byTopic = new Map<Topic, Map<number, RecordSchema>>();

  constructor(log: Pick<EventLog, 'schemaOf'>) {
    this.#log = log;
  }

  /**
   * The schemas that `records` name, by id. Left out are ids that nobody knows and those of another kind of record.
   * @throws what the log throws where it cannot tell now.
   */
  async of(topic: Topic, records: readonly LogRecord[]): Promise<ReadonlyMap<number, RecordSchema>> {
    const known = this.#byTopic.get(topic) ?? new Map<number, RecordSchema>();
    this.#byTopic.set(topic, known);
    const asked = new Set<number>();
    for (const { value } of records) {
      const id = schemaIdOf(value);
      if (id === undefined || known.has(id) || asked.has(id)) continue;
      asked.add(id);
      const schema = await this.#log.schemaOf(id);
      const compiled = schema === undefined ? undefined : compile(topic, schema);
      if (compiled) known.set(id, compiled);
    }
    return known;
  }

  /** One that {@link RecordSchemas.of} has found. */
  get(topic: Topic, id: number): RecordSchema | undefined {
    return this.#byTopic.get(topic)?.get(id);
  }
}

function compile(topic: Topic, schema: string): RecordSchema | undefined {
  const columns = columnsOf(schema, topic);
  return columns && { schema, columns, walk: compileAvroWalk(schema) };
}

import { readFileSync } from 'node:fs';

/** A topic of the event log and the table that its events go to. A further topic is one more entry and one schema. */
export interface Topic {
  readonly name: string;
  readonly table: string;
  /** Avro schema of its records, as JSON text. Field names are column names. */
  readonly schema: string;
  /** Columns of an insert, in the order of the schema. */
  readonly columns: readonly string[];
  /** Events of a trace take the project and time that the first of them fixed, and touch an hour of usage. */
  readonly placedByTrace: boolean;
}

function topic(name: string, table: string, file: string, placedByTrace: boolean): Topic {
  const schema = readFileSync(new URL(`./avro/${file}`, import.meta.url), 'utf8');
  const { fields } = JSON.parse(schema) as { fields: { name: string }[] };
  return { name, table, schema, columns: fields.map((field) => field.name), placedByTrace };
}

export const runEvents = topic('run-events', 'runs', 'run-event.avsc', true);
export const feedbackEvents = topic('feedback-events', 'feedback', 'feedback-event.avsc', false);
export const attachmentEvents = topic('attachment-events', 'attachments', 'attachment-event.avsc', false);

export const topics: readonly Topic[] = [runEvents, feedbackEvents, attachmentEvents];

import avsc from 'avsc';
import type { Topic } from '../../schemas/topics.ts';

/**
 * The field names of `schema`, which may be of another release than the topic's own schema, in order.
 *
 * @returns undefined if the schema describes another record type, or if its fixed-width fields differ from the topic's
 *   in position or type, so that the sink would read and write the wrong bytes.
 */
export function columnsOf(schema: string, topic: Topic): string[] | undefined {
  const own = recordOf(topic.schema);
  const given = recordOf(schema);
  if (own === undefined || given === undefined || given.name !== own.name) return undefined;
  const sameStart = topic.fixed.every(({ name }, index) => {
    const [one, other] = [own.fields[index], given.fields[index]];
    return other?.name === name && JSON.stringify(one?.type.schema()) === JSON.stringify(other.type.schema());
  });
  return sameStart ? given.fields.map(({ name }) => name) : undefined;
}

function recordOf(schema: string): avsc.types.RecordType | undefined {
  try {
    const type = avsc.Type.forSchema(JSON.parse(schema));
    return type instanceof avsc.types.RecordType ? type : undefined;
  } catch {
    return undefined;
  }
}

import avsc from 'avsc';
import type { Topic } from '../../schemas/topics.ts';

/**
 * The fields of `schema`, which may be of another release than the topic's own, in their order.
 *
 * @returns `undefined` where it describes another kind of record, or its fields of constant width do not stand where the
 *   topic's do, so that they would be read and written in the wrong places.
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

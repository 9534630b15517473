import type { FastifyInstance } from 'fastify';

interface Schema {
  readonly type?: string;
  readonly format?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly additionalProperties?: Schema | boolean;
}

const time = /^\d{4}-\d\d-\d\d[T ]/;
const timeWithZone = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$/;

/** Paths of the `date-time` fields in `value` that are not RFC 3339, which requires a zone. */
export function findTimesWithoutZone(schema: Schema, value: unknown, path = ''): string[] {
  if (value === null || value === undefined) return [];
  const found = (schema.anyOf ?? []).flatMap((each) => findTimesWithoutZone(each, value, path));
  if (typeof value === 'string') {
    const isWrong = schema.format === 'date-time' && time.test(value) && !timeWithZone.test(value);
    return isWrong ? [...found, `${path}: '${value}'`] : found;
  }
  if (Array.isArray(value)) {
    const { items } = schema;
    return items
      ? [...found, ...value.flatMap((each, at) => findTimesWithoutZone(items, each, `${path}/${at}`))]
      : found;
  }
  if (typeof value !== 'object') return found;
  const { properties = {}, additionalProperties } = schema;
  const others = typeof additionalProperties === 'object' ? additionalProperties : undefined;
  const fields = Object.entries(value).flatMap(([name, each]) => {
    const field = properties[name] ?? others;
    return field ? findTimesWithoutZone(field, each, `${path}/${name}`) : [];
  });
  return [...found, ...fields];
}

/** Compares the times in every response of a server with the schema of its operation. `check` throws for those without zone. */
export function watchTimes(server: FastifyInstance): { check(): void } {
  const wrong = new Set<string>();
  server.addHook('onSend', async (request, reply, payload) => {
    const { schema, url } = request.routeOptions;
    const declared = (schema?.response as Readonly<Record<string, Schema>> | undefined)?.[reply.statusCode];
    if (declared === undefined || typeof payload !== 'string' || (!payload.startsWith('{') && !payload.startsWith('[')))
      return;
    for (const found of findTimesWithoutZone(declared, JSON.parse(payload))) {
      wrong.add(`${request.method} ${url} ${found}`);
    }
  });
  return {
    check() {
      if (wrong.size > 0) throw new Error(`responses have times without zone: ${[...wrong].join(', ')}`);
    },
  };
}

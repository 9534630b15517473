import type { Tool } from '@modelcontextprotocol/sdk/types.js';

type Schema = Readonly<Record<string, unknown>>;

/** What a tool takes, from what its graph takes: always an object, since arguments are one. A graph that does not say takes any. */
export function toolInputSchema(schema: unknown): Tool['inputSchema'] {
  if (!isObject(schema)) return { type: 'object', additionalProperties: true };
  const { properties, required, ...rest } = { ...schema, ...referred(schema) };
  return {
    ...rest,
    type: 'object',
    ...(isObject(properties) && {
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, property]) => [name, isObject(property) ? property : {}]),
      ),
    }),
    ...(Array.isArray(required) && { required: required.map(String) }),
  };
}

/** What a schema that only refers to one of its own definitions refers to. */
function referred(root: Schema): Schema {
  if (typeof root.$ref !== 'string' || !root.$ref.startsWith('#/')) return {};
  const target = root.$ref
    .slice(2)
    .split('/')
    .reduce<unknown>((place, name) => (isObject(place) ? place[name] : undefined), root);
  return isObject(target) ? { ...target, $ref: undefined } : {};
}

function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

import type { Tool } from '@modelcontextprotocol/sdk/types.js';

type Schema = Readonly<Record<string, unknown>>;

/**
 * Converts the input schema of a graph to that of a tool. It is always an object, because arguments are; a graph
 * without a schema accepts any.
 */
export function toolInputSchema(schema: unknown): Tool['inputSchema'] {
  if (!isObject(schema)) return { type: 'object', additionalProperties: true };
  const { properties, required, ...rest } = { ...schema, ...resolveReference(schema) };
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

/** Resolves a schema that consists only of a reference to one of its definitions. */
function resolveReference(root: Schema): Schema {
  if (typeof root.$ref !== 'string' || !root.$ref.startsWith('#/')) return {};
  const target = root.$ref
    .slice(2)
    .split('/')
    .reduce<unknown>((location, name) => (isObject(location) ? location[name] : undefined), root);
  return isObject(target) ? { ...target, $ref: undefined } : {};
}

function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

import { runlakeError } from '../../../infra/errors/runlake-error.ts';

type Metadata = Readonly<Record<string, unknown>>;

/**
 * Members that the metadata of an object must contain for a user to have access to it, in the form of `metadata @> …`
 * in Postgres: a scalar must be equal; each element of a list must be in the list of that key.
 */
export type RequiredMetadata = Readonly<Record<string, string | number | boolean | readonly string[]>>;

/**
 * Converts the filter that an auth handler returned: `{key: value}`, `{key: {$eq: value}}` or `{key: {$contains: value
 * or list}}`.
 *
 * @returns undefined, which means access to everything, if the filter is null or empty.
 * @throws AUTH_HANDLER_INVALID for any other filter, so that a filter that Runlake does not support denies access.
 */
export function requiredMetadata(filter: unknown, event: string): RequiredMetadata | undefined {
  if (filter === null || filter === undefined) return undefined;
  const invalid = (reason: string) => runlakeError('AUTH_HANDLER_INVALID', { event, reason });
  if (typeof filter !== 'object' || Array.isArray(filter))
    throw invalid(`it returned a ${typeof filter}, not a filter`);
  const required = Object.entries(filter).map(([key, wanted]): [string, string | number | boolean | string[]] => {
    if (isPlain(wanted)) return [key, wanted];
    const [[operator, operand] = [], ...more] = Object.entries((wanted ?? {}) as object);
    if (more.length === 0 && operator === '$eq' && isPlain(operand)) return [key, operand];
    const list = Array.isArray(operand) ? operand : [operand];
    if (more.length === 0 && operator === '$contains' && list.every((one) => typeof one === 'string'))
      return [key, list];
    throw invalid(`the condition on '${key}' is neither a value nor $eq nor $contains`);
  });
  return required.length === 0 ? undefined : Object.fromEntries(required);
}

/** Whether `metadata` contains `required`, with the semantics of `metadata @> required` in Postgres. */
export function holdsRequired(metadata: Metadata, required: RequiredMetadata = {}): boolean {
  return Object.entries(required).every(([key, wanted]) => {
    const given = metadata[key];
    if (!Array.isArray(wanted)) return given === wanted;
    return Array.isArray(given) && wanted.every((one) => given.includes(one));
  });
}

/** Adds `required` to the metadata of a new object, so that its creator has access to it. */
export function metadataWith(metadata: Metadata, required: RequiredMetadata = {}): Record<string, unknown> {
  const added = Object.entries(required).map(([key, wanted]) => {
    if (!Array.isArray(wanted)) return [key, wanted];
    const given = metadata[key];
    return [key, [...new Set([...(Array.isArray(given) ? given : []), ...wanted])]];
  });
  return { ...metadata, ...Object.fromEntries(added) };
}

/** Adjusts changes of metadata so that the changed object still contains `required`. */
export function changesWith(changes: Metadata, required: RequiredMetadata = {}): Record<string, unknown> {
  const dirtyHours = Object.entries(required).filter(([key]) => Object.hasOwn(changes, key));
  return metadataWith(changes, Object.fromEntries(dirtyHours));
}

/** Combines a requested metadata filter with `required`. Returns undefined if no object can contain both. */
export function bothOf(requested: Metadata, required: RequiredMetadata): Record<string, unknown> | undefined {
  const clash = Object.entries(required).some(([key, wanted]) => {
    if (!Object.hasOwn(requested, key)) return false;
    return Array.isArray(wanted) ? !Array.isArray(requested[key]) : requested[key] !== wanted;
  });
  return clash ? undefined : metadataWith(requested, required);
}

function isPlain(value: unknown): value is string | number | boolean {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
}

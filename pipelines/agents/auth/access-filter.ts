import { fault } from '../../../infra/errors/runlake-error.ts';

type Metadata = Readonly<Record<string, unknown>>;

/**
 * What metadata has to hold for a user to reach what it belongs to, in the form in which Postgres is asked (`metadata @> …`): a value
 * where it is to be equal, a list of those that a list is to have.
 */
export type RequiredMetadata = Readonly<Record<string, string | number | boolean | readonly string[]>>;

/**
 * A filter that a handler answered: `{key: value}`, `{key: {$eq: value}}`, `{key: {$contains: value or list}}`; null: all is reached.
 *
 * @throws AUTH_HANDLER_INVALID for anything else: what is not understood lets nobody in.
 */
export function requiredMetadata(filter: unknown, event: string): RequiredMetadata | undefined {
  if (filter === null || filter === undefined) return undefined;
  const invalid = (reason: string) => fault('AUTH_HANDLER_INVALID', { event, reason });
  if (typeof filter !== 'object' || Array.isArray(filter)) throw invalid(`a ${typeof filter}, not a filter`);
  const required = Object.entries(filter).map(([key, wanted]): [string, string | number | boolean | string[]] => {
    if (isPlain(wanted)) return [key, wanted];
    const [[operator, operand] = [], ...more] = Object.entries((wanted ?? {}) as object);
    if (more.length === 0 && operator === '$eq' && isPlain(operand)) return [key, operand];
    const list = Array.isArray(operand) ? operand : [operand];
    if (more.length === 0 && operator === '$contains' && list.every((one) => typeof one === 'string'))
      return [key, list];
    throw invalid(`a condition on '${key}' that is neither a value nor $eq nor $contains`);
  });
  return required.length === 0 ? undefined : Object.fromEntries(required);
}

/** Whether `metadata` holds `required`, as `metadata @> required` does in Postgres. */
export function holdsRequired(metadata: Metadata, required: RequiredMetadata = {}): boolean {
  return Object.entries(required).every(([key, wanted]) => {
    const given = metadata[key];
    if (!Array.isArray(wanted)) return given === wanted;
    return Array.isArray(given) && wanted.every((one) => given.includes(one));
  });
}

/** Metadata for something new that its maker is to reach. */
export function metadataWith(metadata: Metadata, required: RequiredMetadata = {}): Record<string, unknown> {
  const added = Object.entries(required).map(([key, wanted]) => {
    if (!Array.isArray(wanted)) return [key, wanted];
    const given = metadata[key];
    return [key, [...new Set([...(Array.isArray(given) ? given : []), ...wanted])]];
  });
  return { ...metadata, ...Object.fromEntries(added) };
}

/** Changes to metadata that leave what they are for within reach. */
export function changesWith(changes: Metadata, required: RequiredMetadata = {}): Record<string, unknown> {
  const touched = Object.entries(required).filter(([key]) => Object.hasOwn(changes, key));
  return metadataWith(changes, Object.fromEntries(touched));
}

/** What holds both; undefined where nothing can. */
export function bothOf(asked: Metadata, required: RequiredMetadata): Record<string, unknown> | undefined {
  const clash = Object.entries(required).some(([key, wanted]) => {
    if (!Object.hasOwn(asked, key)) return false;
    return Array.isArray(wanted) ? !Array.isArray(asked[key]) : asked[key] !== wanted;
  });
  return clash ? undefined : metadataWith(asked, required);
}

function isPlain(value: unknown): value is string | number | boolean {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
}

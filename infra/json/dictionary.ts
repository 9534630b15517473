import { type Static, type TSchema, Type } from 'typebox';

/**
 * A JSON object whose keys are any texts, with values of one schema. `Type.Record` accepts any value under a key with
 * a line break, and omits such keys from responses.
 */
export const Dictionary = <T extends TSchema>(
  value: T,
  options: { description?: string; minProperties?: number; maxProperties?: number; propertyNames?: TSchema } = {},
) => Type.Unsafe<Record<string, Static<T>>>({ type: 'object', additionalProperties: value, ...options });

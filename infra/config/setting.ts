import { type Static, type TSchema, Type } from 'typebox';

/** A setting: its environment variable, type and bounds, default and description. */
export interface Setting<S extends TSchema = TSchema> {
  readonly variable: string;
  readonly schema: S;
  /** Value if the variable is absent or empty. If it is `undefined`, the setting is then unset. */
  readonly fallback: Static<S> | undefined;
  readonly description: string;
  /**
   * Whether the value is secret. `runlake config` prints secrets as `***`. In a URL, it hides only the user and the
   * password.
   */
  readonly secret: boolean;
}

export function required<S extends TSchema>(variable: string, schema: S, fallback: Static<S>, description: string) {
  return { variable, schema, fallback, description, secret: false } as const;
}

export function optional<S extends TSchema>(variable: string, schema: S, description: string, secret = false) {
  return { variable, schema, fallback: undefined, description, secret } as const;
}

export const text = Type.String({ minLength: 1 });
/** Returns the schema of a URL with one of `schemes`. */
export const url = (...schemes: string[]) =>
  Type.String({ minLength: 1, format: 'uri', pattern: `^(?:${schemes.join('|')})://`, schemes });
/** `*`, or origins of pages, separated by commas. */
export const origins = Type.String({ pattern: '^(?:\\*|https?://[^\\s,/]+(?:,\\s*https?://[^\\s,/]+)*)$' });
export const splitList = (list: string): string[] => list.split(',').map((each) => each.trim());
/** URLs with one of `schemes`, separated by commas. */
export const urls = (...schemes: string[]) => {
  const one = `(?:${schemes.join('|')})://[^\\s,]+`;
  return Type.String({ minLength: 1, pattern: `^${one}(?:\\s*,\\s*${one})*$`, schemes });
};
export const count = (minimum: number, maximum: number) => Type.Integer({ minimum, maximum });
export const bytes = (maximum = 1024 ** 3) => Type.Integer({ minimum: 1024, maximum });
const KIB = 1024;
export const MIB = 1024 * KIB;

/**
 * Parameters of tools. Clients of the original tool server send booleans as the texts `true` and `false`, and lists and
 * objects as JSON texts; other clients send real ones. Each parameter accepts both. `null`, empty texts and empty lists
 * are treated as absent.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isUuid } from '../../pipelines/ingest/run-event/uuid.ts';

export interface Parameter<Value> {
  /** JSON Schema, for the client. */
  readonly schema: Readonly<Record<string, unknown>>;
  readonly required: boolean;
  /** Returns the value that was sent. @throws BAD_REQUEST with a reason for the sender. */
  read(sent: unknown, name: string): Value;
}

export type Parameters = Readonly<Record<string, Parameter<unknown>>>;

export type ValuesOf<P extends Parameters> = { readonly [N in keyof P]: P[N] extends Parameter<infer V> ? V : never };

interface Options {
  readonly description: string;
  readonly minimum?: number;
  readonly examples?: readonly unknown[];
}

const isAbsent = (sent: unknown) => sent === undefined || sent === null || sent === '' || sent === 'null';
const isEmptyList = (sent: unknown) =>
  Array.isArray(sent) ? sent.length === 0 : typeof sent === 'string' && /^\s*\[\s*\]\s*$/.test(sent);

function refuse(name: string, words: string): Error {
  return runlakeError('BAD_REQUEST', { reason: `${name} ${words}` });
}

/** @param isEmpty true for values that count as absent, besides those of {@link isAbsent}. */
function define<Value>(
  schema: Record<string, unknown>,
  read: (sent: unknown, name: string) => Value,
  isEmpty: (sent: unknown) => boolean = () => false,
) {
  const isMissing = (sent: unknown) => isAbsent(sent) || isEmpty(sent);
  return {
    /** A parameter that may be absent. */
    optional: (): Parameter<Value | undefined> => ({
      schema,
      required: false,
      read: (sent, name) => (isMissing(sent) ? undefined : read(sent, name)),
    }),
    required: (): Parameter<Value> => ({
      schema,
      required: true,
      read: (sent, name) => {
        if (isMissing(sent)) throw refuse(name, 'is required');
        return read(sent, name);
      },
    }),
    default: (value: Value, shown: unknown = value): Parameter<Value> => ({
      schema: { ...schema, default: shown },
      required: false,
      read: (sent, name) => (isMissing(sent) ? value : read(sent, name)),
    }),
  };
}

export const text = (options: Options) =>
  define<string>({ type: 'string', ...options }, (sent, name) => {
    if (typeof sent !== 'string') throw refuse(name, 'must be a text');
    return sent;
  });

/** A time. A date without a time means its midnight, UTC. */
export const time = (options: Options) =>
  define<string>({ type: 'string', ...options }, (sent, name) => {
    if (typeof sent !== 'string') throw refuse(name, 'must be a text');
    return /^\d{4}-\d\d-\d\d$/.test(sent) ? `${sent}T00:00:00Z` : sent;
  });

function readUuid(sent: unknown, name: string): string {
  if (typeof sent !== 'string' || !isUuid(sent)) throw refuse(name, 'must be a UUID');
  return sent.toLowerCase();
}

export const uuid = (options: Options) => define<string>({ type: 'string', format: 'uuid', ...options }, readUuid);

export const choice = <const Word extends string>(words: readonly Word[], options: Options) =>
  define<Word>({ type: 'string', enum: words, ...options }, (sent, name) => {
    const word = words.find((each) => each === toWord(sent));
    if (word === undefined) throw refuse(name, `must be one of ${words.join(', ')}`);
    return word;
  });

/** Returns a text, number or boolean in lower case. Other values have no word: their `toString` is the sender's. */
const toWord = (sent: unknown) => (typeof sent === 'object' ? undefined : String(sent).trim().toLowerCase());

/** A whole number, also as a text, by default from 0 on. With the minimum -Infinity, any number. */
export const integer = ({ minimum = 0, ...options }: Options) =>
  define<number>({ type: 'integer', ...(Number.isFinite(minimum) && { minimum }), ...options }, (sent, name) => {
    const value = typeof sent === 'string' && /^-?\d{1,15}$/.test(sent.trim()) ? Number(sent) : sent;
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < minimum)
      throw refuse(name, Number.isFinite(minimum) ? `must be an integer from ${minimum} on` : 'must be an integer');
    return value;
  });

/** A boolean, also as a text. */
export const flag = (options: Options) =>
  define<boolean>(
    { anyOf: [{ type: 'boolean' }, { type: 'string', enum: ['true', 'false'] }], ...options },
    (sent, name) => {
      const word = toWord(sent) ?? '';
      if (['true', '1', 'yes'].includes(word)) return true;
      if (['false', '0', 'no'].includes(word)) return false;
      throw refuse(name, 'must be true or false');
    },
  );

function readList(sent: unknown, name: string): string[] {
  if (typeof sent === 'string') return readJsonList(sent) ?? [sent];
  if (!isListOfTexts(sent)) throw refuse(name, 'must be a list of texts');
  return sent;
}

const isListOfTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((item) => typeof item === 'string');

/** Parses a JSON list of texts. Returns undefined for any other text, such as the name `[prod] agent`. */
function readJsonList(sent: string): string[] | undefined {
  try {
    const list: unknown = JSON.parse(sent);
    return isListOfTexts(list) ? list : undefined;
  } catch {
    return undefined;
  }
}

/** A list of texts, also as a JSON text, or one text. */
export const list = (options: Options) =>
  define<string[]>(
    { anyOf: [{ type: 'array', items: { type: 'string' } }, { type: 'string' }], ...options },
    readList,
    isEmptyList,
  );

export const uuids = (options: Options) =>
  define<string[]>(
    { anyOf: [{ type: 'array', items: { type: 'string', format: 'uuid' } }, { type: 'string' }], ...options },
    (sent, name) => readList(sent, name).map((item) => readUuid(item, name)),
    isEmptyList,
  );

/** A JSON object, also as a JSON text. */
export const object = (options: Options) =>
  define<Readonly<Record<string, unknown>>>(
    { anyOf: [{ type: 'object', additionalProperties: true }, { type: 'string' }], ...options },
    (sent, name) => {
      const value = typeof sent === 'string' ? parseJson(sent, name) : sent;
      if (typeof value !== 'object' || value === null || Array.isArray(value))
        throw refuse(name, 'must be a JSON object');
      return value as Readonly<Record<string, unknown>>;
    },
  );

function parseJson(sent: string, name: string): unknown {
  try {
    return JSON.parse(sent);
  } catch {
    throw refuse(name, 'is not valid JSON');
  }
}

/** Reads the arguments of a call. @throws BAD_REQUEST for the first argument that is not valid. */
export function readArguments<P extends Parameters>(
  parameters: P,
  sent: Readonly<Record<string, unknown>>,
): ValuesOf<P> {
  const values = Object.entries(parameters).map(([name, parameter]) => {
    const value = parameter.read(sent[name], name);
    // A lone surrogate cannot be part of a URL or of a stored text.
    if ([value].flat().some((item) => typeof item === 'string' && /\p{Surrogate}/u.test(item)))
      throw refuse(name, 'must be valid Unicode');
    return [name, value];
  });
  return Object.fromEntries(values) as ValuesOf<P>;
}

/** The JSON Schema of the arguments. */
export function inputSchema(parameters: Parameters) {
  const entries = Object.entries(parameters);
  return {
    type: 'object' as const,
    properties: Object.fromEntries(entries.map(([name, { schema }]) => [name, schema])),
    required: entries.filter(([, { required }]) => required).map(([name]) => name),
  };
}

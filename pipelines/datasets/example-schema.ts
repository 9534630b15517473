import { createContext, Script } from 'node:vm';
import { Ajv, type ErrorObject, type Options, type ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { LRUCache } from 'lru-cache';

/**
 * Returns the error for a value, to be appended to its name, such as `/a/0 must be string`; undefined if the value is
 * valid.
 */
export type ExampleSchemaValidator = (value: unknown) => string | undefined;

/** Why a schema cannot be used. */
export interface UnusableSchema {
  readonly reason: string;
}

const maxSchemaCharacters = 256 * 1024;

/**
 * Maximum time for compiling a schema, and for validating one value. Schemas are written by clients, and a pattern or
 * `uniqueItems` can take exponential or quadratic time. Typical schemas take less than a millisecond.
 */
const timeoutMs = 1_000;

const options: Options = { strict: false, logger: false };

/**
 * The supported dialects of JSON Schema. `meta` validates schemas; it is created at its first use, because creating it
 * is slow.
 */
const dialects = {
  draft7: { create: (more: Options) => new Ajv({ ...options, ...more }), meta: undefined as Ajv | undefined },
  draft2020: {
    create: (more: Options) => new Ajv2020({ ...options, ...more }),
    meta: undefined as Ajv2020 | undefined,
  },
};

/** Compiled schemas by their text, because a dataset is often written many times with the same schema. */
const compiled = new LRUCache<string, ExampleSchemaValidator>({ max: 200 });

/**
 * Compiles a JSON Schema of a dataset. The dialect is draft 2020-12, or draft 7 if `$schema` names draft 4, 6 or 7.
 * References must not lead out of the schema.
 */
export function compileExampleSchema(text: string): ExampleSchemaValidator | UnusableSchema {
  const known = compiled.get(text);
  if (known) return known;
  const check = compile(text);
  if (typeof check === 'function') compiled.set(text, check);
  return check;
}

function compile(text: string): ExampleSchemaValidator | UnusableSchema {
  if (text.length > maxSchemaCharacters) return { reason: `it has more than ${maxSchemaCharacters} characters` };
  const schema = JSON.parse(text) as { readonly $schema?: unknown };
  const { $schema } = schema;
  if ($schema != null && typeof $schema !== 'string') return { reason: '/$schema must be string' };
  const dialect = /draft-0[467]\b/.test($schema ?? '') ? dialects.draft7 : dialects.draft2020;
  dialect.meta ??= prepareMeta(dialect.create({}));
  const { meta } = dialect;
  let validate: ValidateFunction | undefined;
  try {
    validate = runWithTimeout(() => {
      // The dialect is already determined; the text of `$schema` may differ from the URI that the library knows. `$async`
      // is a keyword of the library only: `validate` would return a promise, which is true and may reject.
      const own = { ...schema, $schema: undefined, $async: undefined } as object;
      if (!meta.validateSchema(own)) return undefined;
      const ajv = dialect.create({ meta: false, validateSchema: false });
      addFormats.default(ajv, { mode: 'fast' });
      return ajv.compile(own);
    });
  } catch (error) {
    return { reason: describeFailure(error) };
  }
  if (validate === undefined) return { reason: meta.errorsText(meta.errors, { dataVar: 'it' }) };
  return (value) => {
    try {
      return runWithTimeout(() => validate(value)) ? undefined : describeError(validate.errors?.[0]);
    } catch (error) {
      return ` cannot be validated: ${describeFailure(error)}`;
    }
  };
}

function prepareMeta(meta: Ajv | Ajv2020): Ajv | Ajv2020 {
  meta.validateSchema({});
  return meta;
}

function describeError(error: ErrorObject | undefined): string {
  const extra = error?.keyword === 'additionalProperties' ? `: ${JSON.stringify(error.params.additionalProperty)}` : '';
  return `${error?.instancePath ?? ''} ${error?.message ?? 'is invalid'}${extra}`;
}

function describeFailure(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: unknown };
  return code === 'ERR_SCRIPT_EXECUTION_TIMEOUT'
    ? `it takes longer than ${timeoutMs} ms`
    : String(message).slice(0, 500);
}

const slot = createContext({ work: (): unknown => undefined });
const callWorkScript = new Script('work()');

/** Runs synchronous work. V8 terminates it at the timeout, even during the evaluation of a regular expression. */
function runWithTimeout<Result>(work: () => Result): Result {
  slot.work = work;
  try {
    return callWorkScript.runInContext(slot, { timeout: timeoutMs }) as Result;
  } finally {
    slot.work = () => undefined;
  }
}

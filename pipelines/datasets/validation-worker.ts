/** The thread that compiles schemas and validates documents; see `validation-thread.ts`. */
import { parentPort } from 'node:worker_threads';
import { compileExampleSchema, type ExampleSchemaValidator } from './example-schema.ts';

const validatedFields = ['inputs', 'outputs'] as const;
export type ValidatedField = (typeof validatedFields)[number];

export interface ValidationRequest {
  /** JSON Schemas as text. */
  readonly schemas: Readonly<Record<ValidatedField, string | null>>;
  /** JSON texts. Absent ones always match. */
  readonly documents: readonly { readonly [F in ValidatedField]?: string | null | undefined }[];
  /** Time of the slow values that the client's request has had before. */
  readonly slowMs: number;
}

export interface ValidationResult {
  readonly slowMs: number;
  /** Number of documents that match: the first ones. The thread ends its turn after a while, before the last document. */
  readonly validated: number;
  /** The schema that cannot be used. */
  readonly schemaError?: { readonly field: ValidatedField; readonly reason: string };
  /** The first document that does not match. */
  readonly documentError?: { readonly index: number; readonly reason: string };
}

/** Time of each value that does not count for the request. Values of typical schemas take less than a millisecond. */
const freeMs = 10;
/** Maximum time beyond {@link freeMs} of all values of a request of a client. */
const maxSlowMs = 1_000;

/** After this time a request ends before its next document, so that others have their turn. */
const turnMs = 250;

/** Validates the documents up to the first that does not match, or to the end of the turn. */
export function validateRequest({ schemas, documents, ...request }: ValidationRequest): ValidationResult {
  let { slowMs } = request;
  const validators: [ValidatedField, ExampleSchemaValidator][] = [];
  for (const field of validatedFields) {
    const text = schemas[field];
    if (text === null) continue;
    const compiled = compileExampleSchema(text);
    if (typeof compiled !== 'function') return { slowMs, validated: 0, schemaError: { field, ...compiled } };
    validators.push([field, compiled]);
  }
  const endsAtMs = performance.now() + turnMs;
  for (const [index, document] of documents.entries()) {
    if (index > 0 && performance.now() > endsAtMs) return { slowMs, validated: index };
    for (const [field, validator] of validators) {
      const text = document[field];
      if (text == null) continue;
      const { error, ms } = measureSlow(validator, JSON.parse(text));
      slowMs += ms;
      const tooSlow = ` cannot be validated: the values of the request take ${maxSlowMs} ms longer than ${freeMs} ms each`;
      const reason = error ?? (slowMs > maxSlowMs ? tooSlow : undefined);
      if (reason !== undefined) return { slowMs, validated: index, documentError: { index, reason: field + reason } };
    }
  }
  return { slowMs, validated: documents.length };
}

/**
 * Validates a value, and returns the time that counts. A slow value is validated once more and only the shorter time
 * counts, because pauses of the process also take time.
 */
function measureSlow(validator: ExampleSchemaValidator, value: unknown) {
  const first = measure(validator, value);
  if (first.ms <= freeMs) return { ...first, ms: 0 };
  const second = measure(validator, value);
  return { ...second, ms: Math.max(0, Math.min(first.ms, second.ms) - freeMs) };
}

function measure(validator: ExampleSchemaValidator, value: unknown) {
  const began = performance.now();
  const error = validator(value);
  return { error, ms: performance.now() - began };
}

parentPort?.on('message', (request: ValidationRequest) => parentPort?.postMessage(validateRequest(request)));

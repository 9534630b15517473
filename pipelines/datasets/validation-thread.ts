/**
 * Validates the documents of examples in a thread, because schemas come from clients: a pattern can take exponential
 * time, which must not block the requests of others.
 *
 * Invariant: the thread has at most one request at a time, and every request ends after a limited time.
 *
 *   1. A request waits for the slot of the thread. Organisations take turns.
 *   2. The first request starts the thread. If the thread has ended, the next request starts another.
 *   3. The thread ends work that exceeds its time limits, and responds. If the thread ends instead, the request fails.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { FairSlots } from '../../infra/fairness/fair-slots.ts';
import { getTenantContext } from '../../infra/fairness/tenant-context.ts';
import type { ValidatedField, ValidationRequest, ValidationResult } from './validation-worker.ts';

const slots = new FairSlots({ name: 'schema-validation', slots: 1, extraSlots: 0, maxWaiting: 1_000 });
const maxWaitMs = 30_000;

let thread: Worker | undefined;

/** Maximum number of documents, and of their characters, of a request to the thread. One document may have more. */
const maxDocuments = 64;
const maxCharacters = 1024 * 1024;

/**
 * Validates documents.
 *
 * @param slowMs time of the slow values that the request of the client has had before.
 * @throws INVALID_SCHEMA; OVERLOADED if too many requests wait, or if this one waits for too long.
 */
export async function validateDocuments({ schemas, documents, slowMs }: ValidationRequest): Promise<ValidationResult> {
  let result: ValidationResult = { slowMs };
  let start = 0;
  do {
    const chunk = documents.slice(start, findEnd(documents, start));
    result = await runInThread({ schemas, documents: chunk, slowMs: result.slowMs });
    if (result.schemaError) throw createSchemaError(result.schemaError);
    const { documentError } = result;
    if (documentError) return { ...result, documentError: { ...documentError, index: start + documentError.index } };
    start += chunk.length;
  } while (start < documents.length);
  return result;
}

function findEnd(documents: ValidationRequest['documents'], start: number): number {
  let end = start;
  for (let characters = 0; end < documents.length && end - start < maxDocuments; end++) {
    const { inputs, outputs } = documents[end]!;
    characters += (inputs?.length ?? 0) + (outputs?.length ?? 0);
    if (characters > maxCharacters && end > start) break;
  }
  return end;
}

async function runInThread(request: ValidationRequest): Promise<ValidationResult> {
  const slot = await slots.acquire(getTenantContext()?.organizationId ?? '', { maxWaitMs });
  thread ??= startThread();
  try {
    thread.ref();
    const response = once(thread, 'message');
    thread.postMessage(request);
    const [result] = (await response) as [ValidationResult];
    return result;
  } finally {
    thread?.unref();
    slot.release();
  }
}

function startThread(): Worker {
  const worker = startProgram();
  worker.on('error', () => {
    thread = undefined;
  });
  return worker;
}

function startProgram(): Worker {
  const program = (extension: string) => new URL(`./validation-worker.${extension}`, import.meta.url);
  const options = { env: {}, execArgv: [] };
  if (import.meta.url.endsWith('.js')) return new Worker(program('js'), options);
  const code = `import('tsx/esm/api').then(({ register }) => { register(); return import('${program('ts')}'); })`;
  return new Worker(code, { ...options, eval: true });
}

function createSchemaError({ field, reason }: { readonly field: ValidatedField; readonly reason: string }): Error {
  const name = `${field}_schema_definition`;
  const error = { loc: ['body', name], msg: `cannot be used as JSON Schema: ${reason}`, type: 'invalid_schema' };
  return runlakeError('INVALID_SCHEMA', { field: name, reason }, { fields: [error] });
}

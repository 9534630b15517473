/**
 * Validates the documents of examples in threads, because schemas come from clients: a pattern can take exponential time,
 * which must not block the requests of others.
 *
 * Invariant: a thread has at most one request at a time, and every request ends after a limited time.
 *
 *   1. A request waits for a slot, and takes an idle thread or starts one. Organisations take turns; an organisation that
 *      has no thread does not wait for the long work of one other organisation.
 *   2. The thread validates documents for a quarter of a second, and returns how many. The rest is another request.
 *   3. The thread ends a document or schema that exceeds its time limit. If the thread ends instead, the request fails.
 */
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { FairSlots } from '../../infra/fairness/fair-slots.ts';
import { getTenantContext } from '../../infra/fairness/tenant-context.ts';
import type { ValidatedField, ValidationRequest, ValidationResult } from './validation-worker.ts';

const slots = new FairSlots({ name: 'schema-validation', slots: 1, extraSlots: 1, maxWaiting: 1_000 });
const maxWaitMs = 30_000;

const idleThreads = new Set<Worker>();

/** Maximum number of documents, and of their characters, of a request to a thread. One document may have more. */
const maxDocuments = 2_000;
const maxCharacters = 1024 * 1024;

/**
 * Validates documents.
 *
 * @param slowMs time of the slow values that the request of the client has had before.
 * @throws INVALID_SCHEMA; OVERLOADED if too many requests wait, or if this one waits for too long.
 */
export async function validateDocuments({
  schemas,
  documents,
  slowMs,
}: ValidationRequest): Promise<Omit<ValidationResult, 'validated'>> {
  let result: Omit<ValidationResult, 'validated'> = { slowMs };
  let start = 0;
  do {
    const chunk = documents.slice(start, findEnd(documents, start));
    const { validated, ...ofChunk } = await runInThread({ schemas, documents: chunk, slowMs: result.slowMs });
    const { schemaError, documentError } = ofChunk;
    if (schemaError) throw createSchemaError(schemaError);
    if (documentError) return { ...ofChunk, documentError: { ...documentError, index: start + documentError.index } };
    result = ofChunk;
    start += validated;
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
  try {
    const [thread = startThread()] = idleThreads;
    idleThreads.delete(thread);
    thread.ref();
    const result = await ask(thread, request);
    thread.unref();
    idleThreads.add(thread);
    return result;
  } finally {
    slot.release();
  }
}

async function ask(thread: Worker, request: ValidationRequest): Promise<ValidationResult> {
  const settled = new AbortController();
  const { signal } = settled;
  try {
    const ended = once(thread, 'exit', { signal }).then(([code]) => {
      throw runlakeError('INTERNAL', {}, { cause: `a thread that validates examples ended with code ${code}` });
    });
    const response = once(thread, 'message', { signal });
    thread.postMessage(request);
    const [result] = (await Promise.race([response, ended])) as [ValidationResult];
    return result;
  } finally {
    settled.abort();
  }
}

function startThread(): Worker {
  const thread = startProgram();
  // Without a listener, the error of an idle thread would end the process.
  thread.on('error', () => undefined);
  thread.once('exit', () => idleThreads.delete(thread));
  return thread;
}

function startProgram(): Worker {
  const program = (extension: string) => new URL(`./validation-worker.${extension}`, import.meta.url);
  const options = { env: {}, execArgv: [] };
  if (import.meta.url.endsWith('.js')) return new Worker(program('js'), options);
  const loader = new URL('index.mjs', pathToFileURL(createRequire(import.meta.url).resolve('tsx/esm/api'))).href;
  const code = `import('${loader}').then(({ register }) => { register(); return import('${program('ts')}'); })`;
  return new Worker(code, { ...options, eval: true });
}

function createSchemaError({ field, reason }: { readonly field: ValidatedField; readonly reason: string }): Error {
  const name = `${field}_schema_definition`;
  const error = { loc: ['body', name], msg: `cannot be used as JSON Schema: ${reason}`, type: 'invalid_schema' };
  return runlakeError('INVALID_SCHEMA', { field: name, reason }, { fields: [error] });
}

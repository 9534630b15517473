import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isJsonObject, type JsonObject } from '../../infra/json/json-value.ts';
import { parsePartlyMarkedJson } from '../../infra/json/marked-json.ts';
import { runInTimeSlices, type StepwiseWork } from '../../infra/timeouts/time-slices.ts';
import { type BodyMemory, ParsedValues } from '../ingest/body/body-budget.ts';
import { type FormPart, parseForm } from '../ingest/body/multipart.ts';
import { readWithNonFinite } from '../ingest/json/non-finite.ts';
import { scanValue } from '../ingest/json/scan.ts';
import type { ScanOptions } from '../ingest/json/scan-input.ts';
import { formatTimeWithZone, parseTime } from '../ingest/run-event/times.ts';
import { parseUuid } from '../ingest/run-event/uuid.ts';
import { createExampleError, maxExampleDepth } from './example.ts';
import type { AttachmentsOperations, ExampleChange, NewExample } from './write-examples.ts';

/**
 * An example, as read from the parts of a request. Only examples that are to be changed have `attachmentsOperations`.
 * `datasetId` is for requests whose path names no dataset.
 */
type SentExample = NewExample &
  Pick<ExampleChange, 'attachmentsOperations'> & { readonly datasetId?: string | undefined };
type ExampleDraft = { -readonly [K in keyof SentExample]: SentExample[K] } & { attachments: NewAttachments };
interface SentParts {
  readonly body: Buffer;
  readonly contentType: string;
  readonly memory: BodyMemory;
}
type PartsConfig = Pick<Config, 'maxParts' | 'maxJsonDepth' | 'maxRunBytes'>;
type NewAttachments = Exclude<NewExample['attachments'], undefined>[number][];

/**
 * Reads examples from the parts of a multipart body. The parts can be in any order: `<id>` (JSON of the small fields),
 * `<id>.inputs`, `<id>.outputs`, `<id>.attachment.<name>` and `<id>.attachments_operations`.
 *
 * @throws INVALID_MULTIPART, TOO_MANY_PARTS, UNSUPPORTED_MEDIA_TYPE, INVALID_JSON, INVALID_UTF8, TOO_DEEP,
 *   INVALID_EXAMPLE, EXAMPLE_TOO_LARGE, OVERLOADED.
 */
export function readExampleParts(sent: SentParts, config: PartsConfig): Promise<SentExample[]> {
  return runInTimeSlices(readParts(sent, config));
}

/**
 * Returns the dataset of the examples of a request whose path names none.
 *
 * @throws INVALID_EXAMPLE if an example names no dataset; BAD_REQUEST if there is no example, or if there are several
 *   datasets.
 */
export function findCommonDataset(examples: readonly SentExample[]): string {
  const unassigned = examples.find(({ datasetId }) => datasetId === undefined);
  if (unassigned) throw createExampleError(unassigned.id, 'dataset_id is missing');
  const [datasetId, ...others] = new Set(examples.flatMap(({ datasetId: id }) => id ?? []));
  if (datasetId === undefined) throw runlakeError('BAD_REQUEST', { reason: 'The request contains no examples.' });
  if (others.length > 0) throw runlakeError('BAD_REQUEST', { reason: 'All examples must belong to the same dataset.' });
  return datasetId;
}

function* readParts(
  { body, contentType, memory }: SentParts,
  { maxParts, maxJsonDepth, maxRunBytes }: PartsConfig,
): StepwiseWork<SentExample[]> {
  const drafts = new Map<string, ExampleDraft>();
  const idsWithMainPart = new Set<string>();
  const values = new ParsedValues(memory);
  for (const part of yield* parseForm(body, contentType, maxParts)) {
    const [idText = '', kind, ...rest] = part.name.split('.');
    const id = parseUuid(idText);
    if (id === undefined) throw createPartError(part, 'does not begin with a UUID');
    const draft: ExampleDraft = drafts.get(id) ?? { id, attachments: [] };
    drafts.set(id, draft);
    const options = { part: part.name, maxDepth: Math.min(maxJsonDepth, maxExampleDepth) };
    const json = () => readObject(body, part, options);
    const countedJson = () => readObject(body, part, { ...options, values });
    if (kind === 'attachment') {
      const content = body.subarray(part.start, part.end);
      draft.attachments.push({ name: rest.join('.'), mimeType: part.contentType, content });
    } else if (rest.length > 0) {
      throw createPartError(part, 'is not known');
    } else if (kind === undefined) {
      idsWithMainPart.add(id);
      if (part.end - part.start > maxRunBytes)
        throw runlakeError('EXAMPLE_TOO_LARGE', {
          example: id,
          limitBytes: maxRunBytes,
          limit: 'RUNLAKE_MAX_RUN_BYTES',
        });
      Object.assign(
        draft,
        readSmallFields(
          id,
          parsePartlyMarkedJson(countedJson(), ['metadata'], () => values.addCopies()) as Record<string, unknown>,
        ),
      );
    } else if (kind === 'inputs') draft.inputs = json();
    else if (kind === 'outputs') draft.outputs = json();
    else if (kind === 'attachments_operations')
      draft.attachmentsOperations = readOperations(id, JSON.parse(countedJson()));
    else throw createPartError(part, 'is not known');
    yield;
  }
  for (const id of drafts.keys())
    if (!idsWithMainPart.has(id)) throw createExampleError(id, `the part ${id} is missing`);
  return [...drafts.values()];
}

/** Returns the JSON text of an object as the client sent it, with null in place of NaN and infinities. */
function readObject(body: Buffer, part: FormPart, options: ScanOptions): string {
  return readWithNonFinite(body.subarray(part.start, part.end), (bytes) => {
    const value = scanValue(bytes, 0, bytes.length, options);
    if (value.kind !== 'object') throw createPartError(part, 'must contain a JSON object');
    return bytes.toString('utf8', value.start, value.end);
  });
}

/** Reads the small fields of an example. Unknown fields are ignored; null means that the field is absent. */
function readSmallFields(id: string, main: JsonObject): Partial<ExampleDraft> {
  const read = <T>(name: string, expected: string, isValid: (value: unknown) => value is T): T | undefined => {
    const value = Object.hasOwn(main, name) ? main[name] : undefined;
    if (value === undefined || value === null) return undefined;
    if (!isValid(value)) throw createExampleError(id, `${name} must be ${expected}`);
    return value;
  };
  return {
    datasetId: toUuid(read('dataset_id', 'a UUID', isUuid)),
    createdAt: toTime(read('created_at', 'a time', isTime)),
    metadata: read('metadata', 'an object', isJsonObject),
    split: read('split', 'a text or a list of texts', isTextOrTextArray),
    sourceRunId: toUuid(read('source_run_id', 'a UUID', isUuid)),
    useSourceRunIo: read('use_source_run_io', 'true or false', isBoolean),
    useSourceRunAttachments: read('use_source_run_attachments', 'a list of at most 100 texts', isAttachmentList),
  };
}

function readOperations(id: string, { rename, retain }: { rename?: unknown; retain?: unknown }): AttachmentsOperations {
  if (rename != null && !(isJsonObject(rename) && Object.values(rename).every(isText))) {
    throw createExampleError(id, 'attachments_operations.rename must be an object of texts');
  }
  if (retain != null && !isTextArray(retain)) {
    throw createExampleError(id, 'attachments_operations.retain must be a list of texts');
  }
  return { rename: rename as Record<string, string> | undefined, retain: retain as string[] | undefined };
}

const isText = (value: unknown): value is string => typeof value === 'string';
const isTextArray = (value: unknown): value is string[] => Array.isArray(value) && value.every(isText);
/** The limit is that of JSON requests: the names are a parameter of a query, whose size is limited. */
const isAttachmentList = (value: unknown): value is string[] => isTextArray(value) && value.length <= 100;
const isTextOrTextArray = (value: unknown): value is string | string[] => isText(value) || isTextArray(value);
const isBoolean = (value: unknown): value is boolean => typeof value === 'boolean';
const isTime = (value: unknown): value is string => isText(value) && parseTime(value) !== undefined;
const isUuid = (value: unknown): value is string => isText(value) && parseUuid(value) !== undefined;
/** Postgres does not accept each of the forms in which clients send times. */
const toTime = (text: string | undefined) => text && formatTimeWithZone(parseTime(text) as number);
const toUuid = (text: string | undefined) => text && parseUuid(text);

function createPartError(part: FormPart, reason: string): Error {
  return createExampleError(part.name.slice(0, 200), `the part of this name ${reason}`);
}

import { v7 as uuidv7 } from 'uuid';
import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { readAgentProject } from '../../projects/agent-address.ts';
import { readWithNonFinite } from '../json/non-finite.ts';
import { scanObject } from '../json/scan.ts';
import { KeySet } from '../json/scan-any.ts';
import type { ScanOptions } from '../json/scan-input.ts';
import { decodeStringBytes } from '../json/scan-string.ts';
import { parseDottedOrder } from '../run-event/dotted-order.ts';
import { assignValue, type RunType, type RunValues, runTypes } from '../run-event/run-event.ts';
import { parseTime } from '../run-event/times.ts';
import { parseUuid } from '../run-event/uuid.ts';
import { type RunDraft, requireRunSize } from './draft.ts';
import { readUsage } from './usage-of-run.ts';

/** Maximum size in bytes of a field that is stored in decoded form, such as a name. */
const maxTextBytes = 64 * 1024;

/** Builds the error for the invalid member `key`. `name` identifies the run or item in the request. */
export type CreateInvalidError = (name: string, reason: string, key: string) => Error;

const createInvalidRunError: CreateInvalidError = (run, reason) => runlakeError('INVALID_RUN', { run, reason });

/**
 * Reads single members of an object and checks their types. The methods return `undefined` if a member is absent or
 * null.
 *
 * @throws INVALID_RUN that names the member, or the error that `invalid` builds.
 */
export class MemberReader<K extends string = RunKey> {
  readonly #members: { readonly [P in K]?: JsonValue };
  readonly #name: string;
  readonly #invalid: CreateInvalidError;

  constructor(name: string, members: { readonly [P in K]?: JsonValue }, invalid = createInvalidRunError) {
    this.#name = name;
    this.#members = members;
    this.#invalid = invalid;
  }

  text(key: K): string | undefined {
    const value = this.#present(key);
    if (value === undefined) return undefined;
    if (value.kind !== 'string') throw this.createError(key, 'must be a string');
    if (value.bytes.length > maxTextBytes) throw this.createError(key, `is longer than ${maxTextBytes} bytes`);
    return decodeStringBytes(value.bytes, 0, value.bytes.length);
  }

  uuid(key: K): string | undefined {
    const text = this.text(key);
    if (text === undefined) return undefined;
    const id = parseUuid(text);
    if (id === undefined) throw this.createError(key, 'must be a UUID');
    return id;
  }

  /** Reads a time; returns microseconds since 1970. */
  time(key: K): number | undefined {
    const value = this.#present(key);
    if (value === undefined) return undefined;
    const micros =
      value.kind === 'number' ? parseTime(Number(value.bytes.toString('latin1'))) : parseTime(this.text(key) as string);
    if (micros === undefined)
      throw this.createError(key, 'must be a time in ISO 8601 or in whole milliseconds since 1970');
    return micros;
  }

  /** Returns the bytes of the value unchanged. If `kinds` are given, the value must be of one of them. */
  json(key: K, ...kinds: JsonValue['kind'][]): Buffer | undefined {
    const value = this.#present(key);
    if (value === undefined) return undefined;
    if (kinds.length > 0 && !kinds.includes(value.kind)) throw this.createError(key, `must be ${kinds.join(' or ')}`);
    return value.bytes;
  }

  createError(key: K, reason: string): Error {
    return this.#invalid(this.#name, `${key} ${reason}`, key);
  }

  #present(key: K): JsonValue | undefined {
    const value = this.#members[key];
    return value === undefined || value.kind === 'null' ? undefined : value;
  }
}

/** A JSON value of a run, as bytes of the request body. */
export interface JsonValue {
  readonly kind: 'object' | 'array' | 'string' | 'number' | 'true' | 'false' | 'null';
  /** The text of the value, without surrounding white space. */
  readonly bytes: Buffer;
}

/**
 * Members of a run that Runlake stores. Runlake accepts and ignores all other members. Source: the public run schema.
 */
const runKeys = [
  'id',
  'trace_id',
  'dotted_order',
  'parent_run_id',
  'session_id',
  'session_name',
  'address',
  'reference_example_id',
  'name',
  'run_type',
  'start_time',
  'end_time',
  'tags',
  'inputs',
  'outputs',
  'error',
  'events',
  'extra',
  'serialized',
] as const;
export type RunKey = (typeof runKeys)[number];

/** Members that a multipart body may contain as separate parts. */
export const partKeys = [
  'inputs',
  'outputs',
  'error',
  'events',
  'extra',
  'serialized',
] as const satisfies readonly RunKey[];
export type PartKey = (typeof partKeys)[number];

export type RunMembers = { [K in RunKey]?: JsonValue };

interface RunSource {
  readonly kind: 'post' | 'patch';
  /** Name of the run in errors: its id, part or index. */
  readonly run: string;
  /** Id of the run that was given outside the body: in the path or in the name of a part. */
  readonly pathId?: string | undefined;
  readonly members: RunMembers;
  /** Creates the id of a run that has none. If this function is absent, a missing id is an error. */
  readonly newId?: (reader: MemberReader) => string;
}

/**
 * A run as read from a request, before any lookup. If dotted_order is missing, the caller may have to look up the
 * location of the run.
 */
export interface ParsedRun extends Omit<RunDraft, 'traceId' | 'dottedOrder' | 'startTimeMicros' | 'traceTimeMicros'> {
  readonly traceId?: string | undefined;
  readonly dottedOrder?: DottedOrderKey | undefined;
}

interface DottedOrderKey {
  readonly text: string;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number;
}

/**
 * Reads and validates one post or patch on its own: checks the types, and that the ids agree with each other and with
 * dotted_order.
 *
 * @throws INVALID_RUN that names the invalid member.
 */
export function readRun(source: RunSource): ParsedRun {
  const reader = new MemberReader(source.run, source.members);
  const bodyId = reader.uuid('id');
  const runId = bodyId ?? source.pathId ?? source.newId?.(reader);
  if (runId === undefined) throw reader.createError('id', 'is missing');
  if (source.pathId !== undefined && bodyId !== undefined && bodyId !== source.pathId) {
    throw reader.createError('id', `${bodyId} contradicts the id ${source.pathId} that the request names it by`);
  }
  const parentRunId = reader.uuid('parent_run_id');
  const dottedOrder = readDottedOrder(reader, runId, parentRunId);
  const values = readValues(reader, dottedOrder?.parentId ?? parentRunId);
  return {
    kind: source.kind,
    runId,
    traceId: dottedOrder?.traceId ?? reader.uuid('trace_id'),
    dottedOrder,
    projectId: reader.uuid('session_id'),
    projectName: reader.text('session_name'),
    agentProject: readAgentProject(reader),
    values,
  };
}

/**
 * Reads dotted_order, if present.
 *
 * @throws INVALID_RUN if dotted_order is malformed or contradicts the ids of the run.
 */
function readDottedOrder(reader: MemberReader, runId: string, parentRunId: string | undefined) {
  const text = reader.text('dotted_order');
  if (text === undefined) return undefined;
  const parsed = parseDottedOrder(text);
  if ('reason' in parsed) throw reader.createError('dotted_order', parsed.reason);
  if (parsed.runId !== runId)
    throw reader.createError('dotted_order', `ends with run ${parsed.runId}, not with ${runId}`);
  const traceId = reader.uuid('trace_id');
  if (traceId !== undefined && traceId !== parsed.traceId) {
    throw reader.createError('dotted_order', `begins with ${parsed.traceId}, but trace_id is ${traceId}`);
  }
  if (parentRunId !== undefined && parentRunId !== parsed.parentId) {
    const found = parsed.parentId === undefined ? 'is that of a root run' : `names the parent ${parsed.parentId}`;
    throw reader.createError('dotted_order', `${found}, but parent_run_id is ${parentRunId}`);
  }
  return {
    text: parsed.text,
    traceId: parsed.traceId,
    parentId: parsed.parentId,
    startTimeMicros: parsed.runTimeMicros,
    traceTimeMicros: parsed.traceTimeMicros,
  };
}

function readValues(reader: MemberReader, parentRunId: string | undefined): RunValues {
  const runType = reader.text('run_type');
  if (runType !== undefined && !isRunType(runType)) {
    throw reader.createError('run_type', `'${runType.slice(0, 64)}' is not one of ${runTypes.join(', ')}`);
  }
  const values: RunValues = {};
  assignValue(values, 'name', reader.text('name'));
  assignValue(values, 'runType', runType);
  assignValue(values, 'startedAtMicros', reader.time('start_time'));
  assignValue(values, 'endedAtMicros', reader.time('end_time'));
  assignValue(values, 'parentRunId', parentRunId);
  assignValue(values, 'referenceExampleId', reader.uuid('reference_example_id'));
  assignValue(values, 'tags', reader.json('tags', 'array'));
  assignValue(values, 'inputs', reader.json('inputs'));
  assignValue(values, 'outputs', reader.json('outputs'));
  assignValue(values, 'error', reader.json('error', 'string'));
  assignValue(values, 'events', reader.json('events'));
  assignValue(values, 'extra', reader.json('extra'));
  assignValue(values, 'serialized', reader.json('serialized'));
  if (runType === undefined || runType === 'llm' || runType === 'embedding') readUsage(values);
  return values;
}

function isRunType(text: string): text is RunType {
  return (runTypes as readonly string[]).includes(text);
}

/** Converts a run that has trace_id and dotted_order; returns undefined for any other run. */
export function toLocatedDraft(run: ParsedRun): RunDraft | undefined {
  const { kind, runId, traceId, dottedOrder: order, projectId, projectName, agentProject, values } = run;
  if (order === undefined || traceId === undefined) return undefined;
  const { text: dottedOrder, startTimeMicros, traceTimeMicros } = order;
  // Two spread objects would cost a twentieth of the CPU time of accepting runs.
  return {
    kind,
    runId,
    traceId,
    startTimeMicros,
    traceTimeMicros,
    dottedOrder,
    projectId,
    projectName,
    agentProject,
    values,
  };
}

/**
 * Converts a run of a batch, which must have trace_id and dotted_order.
 *
 * @throws INVALID_RUN if one of them is missing.
 */
export function toBatchDraft(run: ParsedRun): RunDraft {
  const draft = toLocatedDraft(run);
  if (draft !== undefined) return draft;
  const reason = 'dotted_order is missing: runs of a batch need trace_id and dotted_order';
  throw runlakeError('INVALID_RUN', { run: run.runId, reason });
}

const knownKeys = new KeySet(runKeys);

/** Reads the known members of the run object in `body[start, end)`. If a key is repeated, the last member wins. */
export function readRunMembers(body: Buffer, start: number, end: number, options: ScanOptions): RunMembers {
  const ranges = scanObject(body, start, end, knownKeys, options);
  const members: RunMembers = {};
  for (const [index, key] of runKeys.entries()) {
    const range = ranges[index];
    if (range !== undefined) members[key] = { kind: range.kind, bytes: body.subarray(range.start, range.end) };
  }
  return members;
}

/**
 * Reads the run in a JSON body. If a post has no id, the function assigns one.
 *
 * @throws RUN_TOO_LARGE before parsing, and the errors of `readRun`.
 */
export function readJsonRun(
  request: { readonly kind: 'post' | 'patch'; readonly pathId?: string; readonly body: Buffer },
  { maxJsonDepth, maxRunBytes }: Pick<Config, 'maxJsonDepth' | 'maxRunBytes'>,
): ParsedRun {
  const { kind, pathId, body } = request;
  requireRunSize(pathId ?? 'of the body', body.length, maxRunBytes);
  const members = readWithNonFinite(body, (bytes) =>
    readRunMembers(bytes, 0, bytes.length, { part: 'the body', maxDepth: maxJsonDepth }),
  );
  const run = pathId ?? getDisplayId(members) ?? 'of the body';
  return readRun({ kind, run, pathId, members, ...(kind === 'post' && { newId: deriveRunId }) });
}

/**
 * Returns the id at the end of dotted_order, or the trace id for a root run. If neither is available, returns a new id;
 * a repeated request then creates a second run.
 */
function deriveRunId(reader: MemberReader): string {
  const order = parseDottedOrder(reader.text('dotted_order') ?? '');
  if ('runId' in order) return order.runId;
  const rootId = reader.uuid('parent_run_id') === undefined ? reader.uuid('trace_id') : undefined;
  return rootId ?? uuidv7();
}

/**
 * Returns the id as given in the body, to name the run in an error. The id is truncated, because the body may contain
 * any string.
 */
export function getDisplayId({ id }: { readonly id?: JsonValue | undefined }): string | undefined {
  return id?.kind === 'string' ? id.bytes.toString('utf8', 1, Math.min(id.bytes.length - 1, 65)) : undefined;
}

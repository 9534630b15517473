import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { EventLog } from '../../../infra/event-log/event-log.ts';
import { attachmentEvents } from '../../../schemas/topics.ts';
import { readAttachment } from '../../attachments/read-attachment.ts';
import type { BodyMemory } from '../body/body-budget.ts';
import { runInTimeSlices, type StepwiseWork } from '../in-slices.ts';
import { findPath } from '../json/find.ts';
import { chooseError, replaceNonFinite } from '../json/non-finite.ts';
import { requireEnd, requireOpening, ScanInput } from '../json/scan.ts';
import { ChildCursor, KeySet, scanAny } from '../json/scan-any.ts';
import { decodeStringBytes } from '../json/scan-string.ts';
import type { OtlpDraft } from '../otlp/map-span.ts';
import { readOtlp } from '../otlp/read-otlp.ts';
import { formatDottedOrderSegment } from '../run-event/dotted-order.ts';
import { readUuidTimeMicros } from '../run-event/uuid.ts';
import { type AcceptDeps, acceptDrafts, type RelatedEvent, type Sender } from './accept-drafts.ts';
import { type Acceptance, createRunTooLargeError, Rejections, type RunDraft, toSingleRunError } from './draft.ts';
import {
  getDisplayId,
  type JsonValue,
  type ParsedRun,
  readJsonRun,
  readRun,
  readRunMembers,
  toBatchDraft,
} from './read-run.ts';
import { findAcceptedRuns, type RunLocation } from './run-locations.ts';

interface Item {
  readonly kind: 'post' | 'patch';
  readonly start: number;
  readonly end: number;
}

/**
 * Handles `POST /runs/batch`. The body is `{"post": [run, …], "patch": [run, …]}`; either list can be absent.
 *
 * @throws INVALID_JSON, INVALID_UTF8, TOO_DEEP, TOO_MANY_PARTS or BAD_REQUEST for the body as a whole, and the errors
 *   of `acceptDrafts`.
 */
export async function acceptBatch(
  sender: Sender,
  { body, memory }: { readonly body: Buffer; readonly memory: BodyMemory },
  deps: AcceptDeps,
): Promise<Acceptance> {
  const rejected = new Rejections();
  const drafts = await runInTimeSlices(readItems(body, memory, deps.config, rejected)).catch((error: unknown) => {
    const replaced = replaceNonFinite(body, error, (bytes) => memory.take(bytes));
    if (replaced === undefined) throw error;
    return runInTimeSlices(readItems(replaced, memory, deps.config, rejected)).catch((later: unknown) => {
      throw chooseError(error, later);
    });
  });
  return acceptDrafts(sender, drafts, rejected, deps);
}

function* readItems(
  body: Buffer,
  memory: BodyMemory,
  config: AcceptDeps['config'],
  rejected: Rejections,
): StepwiseWork<RunDraft[]> {
  const drafts: RunDraft[] = [];
  for (const [index, item] of (yield* findItems(body, memory, config)).entries()) {
    const part = `${item.kind} ${index}`;
    let name = part;
    try {
      if (item.end - item.start > config.maxRunBytes) {
        name = getDisplayId({ id: readItemId(body, item) }) ?? part;
        throw createRunTooLargeError(name, config.maxRunBytes);
      }
      const members = readRunMembers(body, item.start, item.end, { part, maxDepth: config.maxJsonDepth });
      name = getDisplayId(members) ?? part;
      drafts.push(toBatchDraft(readRun({ kind: item.kind, run: name, members })));
    } catch (error) {
      rejected.addCaught(name, error);
    }
    yield;
  }
  return drafts;
}

function readItemId(body: Buffer, item: Item): JsonValue | undefined {
  const range = findPath(body, item.start, item.end, ['id']);
  return range && { kind: range.kind, bytes: body.subarray(range.start, range.end) };
}

/**
 * Validates the whole body and finds the runs in it: all posts, then all patches. If a list is repeated, the last
 * occurrence wins.
 */
function* findItems(
  body: Buffer,
  memory: BodyMemory,
  { maxJsonDepth, maxParts }: Pick<Config, 'maxJsonDepth' | 'maxParts'>,
): StepwiseWork<Item[]> {
  const origin = new ScanInput(body, 0, body.length, { part: 'the body', maxDepth: maxJsonDepth });
  const found: Record<Item['kind'], Item[]> = { post: [], patch: [] };
  let firstError: string | undefined;
  const cursor = new ChildCursor(origin, requireOpening(origin, 0x7b, 'an object'), 0);
  let end = 0;
  for (let hasMember = cursor.first(); hasMember; hasMember = cursor.next(end)) {
    const { at, keyStart, keyEnd } = cursor;
    const kind = listKeys.keys[listKeys.find(body, keyStart + 1, keyEnd - 1)];
    if (kind === undefined || body[at] !== 0x5b) {
      end = scanAny(origin, at, 1);
      if (kind !== undefined) {
        if (body[at] !== 0x6e) firstError ??= `${kind} must be a list of runs.`;
        found[kind] = [];
      }
    } else {
      found[kind] = [];
      end = yield* findRuns(origin, at, { kind, items: found[kind], maxParts, memory });
    }
    yield;
  }
  requireEnd(origin, cursor.at);
  if (firstError !== undefined) throw runlakeError('BAD_REQUEST', { reason: firstError });
  enforcePartLimit(found.post.length + found.patch.length, maxParts);
  return [...found.post, ...found.patch];
}

/** Adds the runs of the list that begins at `first` to `items`. Returns the index after the list. */
function* findRuns(
  origin: ScanInput,
  first: number,
  { kind, items, maxParts, memory }: { kind: Item['kind']; items: Item[]; maxParts: number; memory: BodyMemory },
): StepwiseWork<number> {
  const cursor = new ChildCursor(origin, first, 1);
  for (let hasRun = cursor.first(); hasRun; ) {
    const start = cursor.at;
    const end = scanAny(origin, start, 2);
    items.push({ kind, start, end });
    enforcePartLimit(items.length, maxParts);
    memory.addItem();
    yield;
    hasRun = cursor.next(end);
  }
  return cursor.at;
}

function enforcePartLimit(count: number, maxParts: number): void {
  if (count > maxParts)
    throw runlakeError('TOO_MANY_PARTS', { limitParts: maxParts, limit: 'the limit of one request' });
}

const listKeys = new KeySet(['post', 'patch']);

/** Dependencies of {@link acceptSingle}, which may have to find a run. */
export type AcceptSingleDeps = AcceptDeps & { readonly log: Pick<EventLog, 'position' | 'isStored'> };

/**
 * Handles `POST /runs` and `PATCH /runs/{id}`. The body is one run, which can omit trace_id and dotted_order. For a
 * post without dotted_order, a dotted_order is created. A patch that contains only an id gets the location of its run,
 * and a post that contains only the id of its parent gets the trace of the parent; the request waits up to
 * `patchWaitMs` until that run is known, and longer while the sinks are behind (`findAcceptedRuns`).
 *
 * @throws INVALID_RUN, RUN_UNKNOWN, NOT_STORED_YET and the errors of `acceptDrafts`.
 */
export async function acceptSingle(
  sender: Sender,
  request: { kind: 'post' | 'patch'; pathId?: string; body: Buffer },
  deps: AcceptSingleDeps,
): Promise<Acceptance> {
  const run = readJsonRun(request, deps.config);
  const draft = await toSingleDraft(sender, run, deps);
  const acceptance = await acceptDrafts(sender, [draft], new Rejections(), deps, [], toSingleRunError);
  if (run.kind === 'post') deps.runLocations.remember(sender.workspaceId, run.runId, draft);
  return acceptance;
}

async function toSingleDraft(sender: Sender, run: ParsedRun, deps: AcceptSingleDeps): Promise<RunDraft> {
  const { dottedOrder, traceId, ...rest } = run;
  if (dottedOrder !== undefined && traceId !== undefined) {
    const { text, startTimeMicros, traceTimeMicros } = dottedOrder;
    return { ...rest, traceId, startTimeMicros, traceTimeMicros, dottedOrder: text };
  }
  const { workspaceId } = sender;
  const location =
    run.kind === 'patch'
      ? (await findAcceptedRuns(workspaceId, [run.runId], deps))?.[0]
      : await deps.runLocations.find(workspaceId, run.runId, 0);
  if (location !== undefined) return toDraftAtLocation(run, location);
  if (run.kind === 'patch') throw runlakeError('RUN_UNKNOWN', { run: run.runId });
  return buildNewDraft(sender, run, deps);
}

/**
 * Builds the draft of a run whose location is known. The run keeps its key even if the request states another start
 * time.
 */
function toDraftAtLocation({ dottedOrder: _none, ...run }: ParsedRun, location: RunLocation): RunDraft {
  if (run.traceId !== undefined && run.traceId !== location.traceId) {
    throw runlakeError('INVALID_RUN', {
      run: run.runId,
      reason: `trace_id ${run.traceId} is not that of the run, ${location.traceId}`,
    });
  }
  const { traceId, startTimeMicros, traceTimeMicros } = location;
  return { ...run, traceId, startTimeMicros, traceTimeMicros };
}

/**
 * Builds the draft for the first post of a run that has no dotted_order. A root run starts its own trace; a child run
 * belongs to the trace that the request names or, if it names none, to the trace of its parent, for which the request
 * waits. It is not accepted without a trace, because its project, its partition and its usage follow from the trace.
 * The key time is the start time of the run. If the run has no start time, the key time is taken from an id of UUID
 * version 7, so that a repeated request gets the same key. If a concurrent request for the same run determines another
 * key time, the sink gives both events the same key time.
 */
async function buildNewDraft(
  sender: Sender,
  { dottedOrder: _none, ...run }: ParsedRun,
  deps: AcceptSingleDeps,
): Promise<RunDraft> {
  const { parentRunId, startedAtMicros } = run.values;
  const startTimeMicros = startedAtMicros ?? readUuidTimeMicros(run.runId) ?? Date.now() * 1_000;
  if (parentRunId === undefined) {
    if (run.traceId !== undefined && run.traceId !== run.runId) {
      const reason = `trace_id is ${run.traceId}, but a run without parent_run_id begins its own trace`;
      throw runlakeError('INVALID_RUN', { run: run.runId, reason });
    }
    const dottedOrder = formatDottedOrderSegment(startTimeMicros, run.runId);
    return { ...run, traceId: run.runId, startTimeMicros, traceTimeMicros: startTimeMicros, dottedOrder };
  }
  const parent =
    run.traceId === undefined
      ? (await findAcceptedRuns(sender.workspaceId, [parentRunId], deps))?.[0]
      : await deps.runLocations.find(sender.workspaceId, parentRunId, 0);
  const traceId = run.traceId ?? parent?.traceId;
  if (traceId === undefined) {
    const reason = `its parent ${parentRunId} is not stored: post the parent first, or send trace_id`;
    throw runlakeError('INVALID_RUN', { run: run.runId, reason });
  }
  return { ...run, traceId, startTimeMicros, traceTimeMicros: parent?.traceTimeMicros ?? startTimeMicros };
}

/** Maximum size of the JSON of all spans of one request, as a multiple of the maximum size of a body. */
const maxTextFactor = 2;

interface OtlpBody {
  readonly body: Buffer;
  readonly contentType: string | undefined;
  /** Project for spans that name no project themselves. */
  readonly project: Pick<RunDraft, 'projectName' | 'agentProject'>;
  readonly memory: BodyMemory;
}

/**
 * Handles `POST /otel/v1/traces`. The body is an OTLP ExportTraceServiceRequest; each span becomes a run.
 *
 * @throws the errors of `readOtlp` and `acceptDrafts`.
 */
export async function acceptOtlp(
  sender: Sender,
  { body, contentType, project, memory }: OtlpBody,
  deps: AcceptDeps,
): Promise<Acceptance> {
  const { maxJsonDepth: maxDepth, maxParts, maxBodyBytes } = deps.config;
  const maxBytes = maxTextFactor * maxBodyBytes;
  const reserve = (bytes: number) => memory.take(bytes);
  const addItem = () => memory.addItem();
  const { drafts, rejected: rejectedSpans } = await runInTimeSlices(
    readOtlp({ body, contentType, maxDepth, maxParts, maxBytes, reserve, addItem }),
  );
  const rejected = new Rejections();
  for (const { index, reason } of rejectedSpans) rejected.addInconsistentRun(`span ${index}`, reason);
  const named = drafts.map((draft) =>
    draft.projectId === undefined && draft.projectName === undefined ? { ...draft, ...project } : draft,
  );
  const attachments = await runInTimeSlices(encodeAttachments(sender, drafts, memory, deps, rejected));
  return acceptDrafts(sender, named, rejected, deps, attachments);
}

/** Encodes the attachments of spans as log messages. An attachment that is too large is rejected, its run is not. */
function* encodeAttachments(
  sender: Sender,
  drafts: readonly OtlpDraft[],
  memory: BodyMemory,
  deps: AcceptDeps,
  rejected: Rejections,
): StepwiseWork<RelatedEvent[]> {
  const events: RelatedEvent[] = [];
  for (const { index, runId, attachments } of drafts) {
    for (const { name, mimeType, content: json } of attachments) {
      const part = `span ${index}, attachment ${name}`;
      memory.addItem();
      // The decoded content and the message.
      memory.take(2 * json.length);
      try {
        const content = Buffer.from(decodeStringBytes(json, 0, json.length), 'base64');
        const message = readAttachment(sender, { runId, name, mimeType, content }, deps);
        events.push({ topic: attachmentEvents, runId, part, message });
      } catch (error) {
        rejected.addCaught(part, error);
      }
      yield;
    }
  }
  return events;
}

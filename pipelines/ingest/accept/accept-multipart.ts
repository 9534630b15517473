import type { Config } from '../../../infra/config/settings.ts';
import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { runInTimeSlices, type StepwiseWork } from '../../../infra/timeouts/time-slices.ts';
import { attachmentEvents, feedbackEvents } from '../../../schemas/topics.ts';
import { readAttachment } from '../../attachments/read-attachment.ts';
import { toFeedbackMessage } from '../../feedback/feedback-event.ts';
import { openPreparation } from '../../feedback/prepare-feedback.ts';
import { type ParsedFeedback, readFeedback } from '../../feedback/read-feedback.ts';
import type { BodyMemory } from '../body/body-budget.ts';
import { createMultipartError, type FormPart, parseMultipart } from '../body/multipart.ts';
import { readWithNonFinite } from '../json/non-finite.ts';
import { scanValue } from '../json/scan.ts';
import { parseUuid } from '../run-event/uuid.ts';
import { type AcceptDeps, acceptDrafts, type Companion } from './accept-drafts.ts';
import { type Acceptance, Rejections, type RunDraft, requireRunSize, type Sender } from './draft.ts';
import { type PartKey, partKeys, type RunMembers, readRun, readRunMembers, toBatchDraft } from './read-run.ts';

/** Maximum number of characters of a part name in a response. */
const maxShownCharacters = 200;

/** The multipart parts that form one post or patch of a run. A run may have several of each in one body. */
interface RunParts {
  readonly kind: 'post' | 'patch';
  readonly id: string;
  main: FormPart | undefined;
  readonly fields: Map<PartKey, FormPart>;
}

/** The multipart parts of a body, grouped by kind. */
interface GroupedParts {
  readonly runs: readonly RunParts[];
  readonly feedback: readonly FormPart[];
  readonly attachments: readonly { readonly part: FormPart; readonly runId: string; readonly name: string }[];
}

interface MultipartBody {
  readonly body: Buffer;
  readonly contentType: string;
  readonly memory: BodyMemory;
  /** Aborted if the client disconnects before the response is complete. */
  readonly disconnected?: AbortSignal;
  /** If present, the body is refused with this error unless it has feedback only. */
  readonly refusal?: RunlakeError | undefined;
}

/**
 * Handles `POST /runs/multipart`. The body contains runs, their large fields, feedback and attachments as parts, in any
 * order.
 *
 * @throws `refusal`; INVALID_MULTIPART or TOO_MANY_PARTS if the body as a whole cannot be read, and the errors of
 *   `acceptDrafts`.
 */
export async function acceptMultipart(
  sender: Sender,
  { disconnected, ...sent }: MultipartBody,
  deps: AcceptDeps,
): Promise<Acceptance> {
  const rejected = new Rejections();
  const { drafts, feedback, attachments } = await runInTimeSlices(readParts(sender, sent, deps, rejected));
  const kept = await prepareFeedback(sender, feedback, deps, rejected, disconnected);
  return acceptDrafts({ sender, drafts, rejected, companions: [...kept, ...attachments] }, deps);
}

/** Reads all parts of a body and converts them to drafts and companions. */
function* readParts(
  sender: Sender,
  { body, contentType, memory, refusal }: MultipartBody,
  { config, log }: AcceptDeps,
  rejected: Rejections,
): StepwiseWork<{ drafts: RunDraft[]; feedback: SentFeedback[]; attachments: Companion[] }> {
  const parts = yield* parseMultipart(body, contentType, config.maxParts, () => memory.addItem());
  const groupedParts = groupParts(parts, rejected);
  if (refusal && groupedParts.runs.length + groupedParts.attachments.length > 0) throw refusal;
  const drafts = yield* collect(
    groupedParts.runs,
    rejected,
    ({ id }) => id,
    (run) => readRunParts(run, body, config, memory),
  );
  const feedback = yield* collect(groupedParts.feedback, rejected, getPartName, (part) => {
    requireValidPart(part);
    const { name, start, end } = part;
    return { part: name, entry: readFeedback(sender, { bytes: body.subarray(start, end), part: name }, config) };
  });
  const attachments = yield* collect(
    groupedParts.attachments,
    rejected,
    ({ part }) => getPartName(part),
    ({ part, runId, name }) => {
      requireValidPart(part);
      const content = body.subarray(part.start, part.end);
      const attachment = { runId, name, mimeType: part.contentType, content };
      const message = readAttachment(sender, attachment, { log, config });
      return { topic: attachmentEvents, part: part.name, runId, message };
    },
  );
  return { drafts, feedback, attachments };
}

interface SentFeedback {
  readonly part: string;
  readonly entry: ParsedFeedback;
}

/** Checks the feedback of a body, stores the configs that were sent with it, and encodes it. */
async function prepareFeedback(
  { workspaceId }: Sender,
  sent: readonly SentFeedback[],
  { feedback, log, config }: AcceptDeps,
  rejected: Rejections,
  disconnected: AbortSignal | undefined,
): Promise<Companion[]> {
  if (sent.length === 0 || feedback === undefined) return [];
  const entries = sent.map(({ entry }) => entry);
  const prepare = await openPreparation(feedback, workspaceId, entries, disconnected);
  const accepted: Companion[] = [];
  for (const { part, entry } of sent) {
    try {
      const event = await prepare(entry);
      const message = toFeedbackMessage(event, log, config);
      accepted.push({ topic: feedbackEvents, part, runId: event.runId, message });
    } catch (error) {
      if (disconnected?.aborted) throw error;
      rejected.addCaught(part, error);
    }
  }
  return accepted;
}

/** Calls `read` for each item. If it throws an error of class `caller`, the item is rejected under its display id. */
function* collect<Item, Result>(
  items: Iterable<Item>,
  rejected: Rejections,
  getItemId: (item: Item) => string,
  read: (item: Item) => Result,
): StepwiseWork<Result[]> {
  const results: Result[] = [];
  for (const item of items) {
    try {
      results.push(read(item));
    } catch (error) {
      rejected.addCaught(getItemId(item), error);
    }
    yield;
  }
  return results;
}

/**
 * Groups the parts of a body. A name is `post.<id>`, `post.<id>.inputs`, `feedback.<id>`, `attachment.<id>.<name>` or the
 * like. A repeated `post.<id>` or `patch.<id>` begins a further event of the run, to which the following fields belong:
 * SDKs send two patches of a run in one body. Repeated feedback and attachments are further events too, so that the last
 * one wins, as if the body had been sent in several requests.
 */
function groupParts(parts: readonly FormPart[], rejected: Rejections): GroupedParts {
  const runs: RunParts[] = [];
  /** The current event of each run, by `post.<id>` or `patch.<id>`. Only ids in another spelling have to be parsed again. */
  const runsByName = new Map<string, RunParts>();
  const feedback: FormPart[] = [];
  const attachments: { part: FormPart; runId: string; name: string }[] = [];
  for (const part of parts) {
    try {
      if (part.name === '') requireValidPart(part);
      const [itemName, rest] = cutName(part.name);
      const known = runsByName.get(itemName);
      if (known !== undefined && !isFurtherEvent(known, rest)) {
        addToRun(known, rest, part);
        continue;
      }
      const [kind, id = ''] = itemName.split('.');
      if (kind === 'feedback') feedback.push(part);
      else if (kind === 'attachment') attachments.push({ part, runId: readItemId(part, id), name: rest });
      else if (kind === 'post' || kind === 'patch') {
        const runId = readItemId(part, id);
        const key = `${kind}.${runId}`;
        const current = runsByName.get(key);
        const isNew = current === undefined || isFurtherEvent(current, rest);
        const run: RunParts = isNew
          ? { kind, id: runId, main: undefined, fields: new Map<PartKey, FormPart>() }
          : current;
        addToRun(run, rest, part);
        if (isNew) runs.push(run);
        runsByName.set(key, run);
      } else throw createPartNameError(part, 'does not begin with post, patch, feedback or attachment');
    } catch (error) {
      rejected.addCaught(getPartName(part), error);
    }
  }
  return { runs, feedback, attachments };
}

/** Divides the name of a part at its second dot. */
function cutName(name: string): [itemName: string, rest: string] {
  const end = name.indexOf('.', name.indexOf('.') + 1);
  return end === -1 ? [name, ''] : [name.slice(0, end), name.slice(end + 1)];
}

function isFurtherEvent({ main }: RunParts, field: string): boolean {
  return field === '' && main !== undefined;
}

function addToRun(run: RunParts, field: string, part: FormPart): void {
  if (field === '') run.main = part;
  else if (isPartKey(field)) {
    if (run.fields.has(field)) throw createMultipartError(part.headersStart, `the part '${part.name}' is repeated`);
    run.fields.set(field, part);
  }
  // As unknown members of the run in JSON, a field of another name is ignored.
}

function readRunParts(
  run: RunParts,
  body: Buffer,
  { maxJsonDepth: maxDepth, maxRunBytes }: Pick<Config, 'maxJsonDepth' | 'maxRunBytes'>,
  memory: BodyMemory,
): RunDraft {
  const { main, id, kind } = run;
  if (main === undefined) {
    throw runlakeError('INVALID_RUN', {
      run: id,
      reason: `the part ${kind}.${id} is missing; the request has only fields of the run`,
    });
  }
  for (const part of [main, ...run.fields.values()]) {
    requireValidPart(part);
    requireRunSize(id, part.end - part.start, maxRunBytes);
  }
  const members: RunMembers = readRunMembers(body, main.start, main.end, { part: main.name, maxDepth });
  for (const [key, part] of run.fields) {
    members[key] = readWithNonFinite(
      body.subarray(part.start, part.end),
      (bytes) => {
        const { kind, start, end } = scanValue(bytes, 0, bytes.length, { part: part.name, maxDepth });
        return { kind, bytes: bytes.subarray(start, end) };
      },
      (bytes) => memory.take(bytes),
    );
  }
  return toBatchDraft(readRun({ kind, run: id, pathId: id, members }));
}

/** @throws INVALID_MULTIPART if the headers of the part are invalid. */
function requireValidPart({ error, headersStart }: FormPart): void {
  if (error !== undefined) throw createMultipartError(headersStart, error);
}

/** Returns the name of a part for rejections. */
function getPartName({ name, headersStart }: FormPart): string {
  return name === '' ? `part at byte ${headersStart}` : name.slice(0, maxShownCharacters);
}

function readItemId(part: FormPart, text: string): string {
  const id = parseUuid(text);
  if (id === undefined) throw createPartNameError(part, 'has no UUID after its first dot');
  return id;
}

function isPartKey(field: string): field is PartKey {
  return (partKeys as readonly string[]).includes(field);
}

function createPartNameError(part: FormPart, reason: string): Error {
  return runlakeError('INVALID_RUN', { run: getPartName(part), reason: `the name of the part ${reason}` });
}

import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { runInTimeSlices, type StepwiseWork } from '../../../infra/timeouts/time-slices.ts';
import type { BodyMemory } from '../body/body-budget.ts';
import { findPath } from '../json/find.ts';
import { chooseError, replaceNonFinite } from '../json/non-finite.ts';
import { requireEnd, requireObject } from '../json/scan.ts';
import { ChildCursor, KeySet, scanAny } from '../json/scan-any.ts';
import { ScanInput } from '../json/scan-input.ts';
import { type AcceptDeps, acceptDrafts } from './accept-drafts.ts';
import { type Acceptance, createRunTooLargeError, Rejections, type RunDraft, type Sender } from './draft.ts';
import { getDisplayId, type JsonValue, readRun, readRunMembers, toBatchDraft } from './read-run.ts';

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
  return acceptDrafts({ sender, drafts, rejected }, deps);
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
  const cursor = new ChildCursor(origin, requireObject(origin), 0);
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

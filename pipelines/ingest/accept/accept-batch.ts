import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { inSlices, type StepwiseWork } from '../in-slices.ts';
import { ChildCursor } from '../json/child-cursor.ts';
import { findPath } from '../json/find.ts';
import { KeySet } from '../json/key-set.ts';
import { requireEnd, requireOpening } from '../json/scan.ts';
import { scanAny } from '../json/scan-any.ts';
import { ScanOrigin } from '../json/scan-origin.ts';
import { type AcceptDeps, acceptDrafts } from './accept-drafts.ts';
import type { Acceptance, Rejection, RunDraft } from './draft.ts';
import type { Sender } from './publish-runs.ts';
import { nameOf, runMembers } from './read-json-run.ts';
import { draftOfBatch, readRun } from './read-run.ts';
import { rejectionOf, runTooLarge } from './rejection.ts';
import type { JsonValue } from './run-members.ts';

interface Item {
  readonly kind: 'post' | 'patch';
  readonly start: number;
  readonly end: number;
}

/**
 * `POST /runs/batch`: `{"post": [run, …], "patch": [run, …]}`; either list may be missing.
 * @throws INVALID_JSON, INVALID_UTF8, TOO_DEEP, TOO_MANY_PARTS or BAD_REQUEST for the body as a whole, and what
 *   `acceptDrafts` throws.
 */
export async function acceptBatch(sender: Sender, body: Buffer, deps: AcceptDeps): Promise<Acceptance> {
  const rejected: Rejection[] = [];
  const drafts = await inSlices(readItems(body, deps.config, rejected));
  return acceptDrafts(sender, drafts, rejected, deps);
}

function* readItems(body: Buffer, config: AcceptDeps['config'], rejected: Rejection[]): StepwiseWork<RunDraft[]> {
  const drafts: RunDraft[] = [];
  for (const [index, item] of (yield* findItems(body, config)).entries()) {
    const part = `${item.kind} ${index}`;
    let name = part;
    try {
      if (item.end - item.start > config.maxRunBytes) {
        name = nameOf({ id: idOf(body, item) }) ?? part;
        throw runTooLarge(name, config.maxRunBytes);
      }
      const members = runMembers(body, item.start, item.end, { part, maxDepth: config.maxJsonDepth });
      name = nameOf(members) ?? part;
      drafts.push(draftOfBatch(readRun({ kind: item.kind, run: name, members })));
    } catch (error) {
      rejected.push(rejectionOf(name, error));
    }
    yield;
  }
  return drafts;
}

function idOf(body: Buffer, item: Item): JsonValue | undefined {
  const range = findPath(body, item.start, item.end, ['id']);
  return range && { kind: range.kind, bytes: body.subarray(range.start, range.end) };
}

/**
 * Validates the whole body and finds the runs in it: all posts, then all patches. If a list is repeated, the last one counts.
 */
function* findItems(
  body: Buffer,
  { maxJsonDepth, maxParts }: Pick<Config, 'maxJsonDepth' | 'maxParts'>,
): StepwiseWork<Item[]> {
  const origin = new ScanOrigin(body, 0, body.length, { part: 'the body', maxDepth: maxJsonDepth });
  const found: Record<Item['kind'], Item[]> = { post: [], patch: [] };
  let misfit: string | undefined;
  const cursor = new ChildCursor(origin, requireOpening(origin, 0x7b, 'an object'), 0);
  let end = 0;
  for (let hasMember = cursor.first(); hasMember; hasMember = cursor.next(end)) {
    const { at, keyStart, keyEnd } = cursor;
    const kind = lists.keys[lists.find(body, keyStart + 1, keyEnd - 1)];
    if (kind === undefined || body[at] !== 0x5b) {
      end = scanAny(origin, at, 1);
      if (kind !== undefined) {
        if (body[at] !== 0x6e) misfit ??= `${kind} must be a list of runs.`;
        found[kind] = [];
      }
    } else {
      found[kind] = [];
      end = yield* findRuns(origin, at, { kind, items: found[kind], maxParts });
    }
    yield;
  }
  requireEnd(origin, cursor.at);
  if (misfit !== undefined) throw runlakeError('BAD_REQUEST', { reason: misfit });
  requireParts(found.post.length + found.patch.length, maxParts);
  return [...found.post, ...found.patch];
}

/** Adds the runs of the list at `first` to `items`; returns the index after the list. */
function* findRuns(
  origin: ScanOrigin,
  first: number,
  { kind, items, maxParts }: { kind: Item['kind']; items: Item[]; maxParts: number },
): StepwiseWork<number> {
  const cursor = new ChildCursor(origin, first, 1);
  for (let hasRun = cursor.first(); hasRun; ) {
    const start = cursor.at;
    const end = scanAny(origin, start, 2);
    items.push({ kind, start, end });
    requireParts(items.length, maxParts);
    yield;
    hasRun = cursor.next(end);
  }
  return cursor.at;
}

function requireParts(count: number, maxParts: number): void {
  if (count > maxParts)
    throw runlakeError('TOO_MANY_PARTS', { limitParts: maxParts, limit: 'the limit of one request' });
}

const lists = new KeySet(['post', 'patch']);

import { v7 as uuidv7 } from 'uuid';
import type { Config } from '../../../infra/config/settings.ts';
import { KeySet } from '../json/key-set.ts';
import { type ScanOptions, scanObject } from '../json/scan.ts';
import { parseDottedOrder } from '../run-event/dotted-order.ts';
import type { MemberReader } from './read-members.ts';
import { type ReadRun, readRun } from './read-run.ts';
import { requireRunSize } from './rejection.ts';
import { type JsonValue, type RunMembers, runKeys } from './run-members.ts';

const known = new KeySet(runKeys);

/** The known members of the run object in `body[start, end)`; if a key is repeated, the last one counts. */
export function runMembers(body: Buffer, start: number, end: number, options: ScanOptions): RunMembers {
  const ranges = scanObject(body, start, end, known, options);
  const members: RunMembers = {};
  for (const [index, key] of runKeys.entries()) {
    const range = ranges[index];
    if (range !== undefined) members[key] = { kind: range.kind, bytes: body.subarray(range.start, range.end) };
  }
  return members;
}

/**
 * Reads the run in a JSON body. A post without an id gets one. @throws RUN_TOO_LARGE before parsing, and what `readRun`
 * throws.
 */
export function readJsonRun(
  request: { readonly kind: 'post' | 'patch'; readonly idOutside?: string; readonly body: Buffer },
  { maxJsonDepth, maxRunBytes }: Pick<Config, 'maxJsonDepth' | 'maxRunBytes'>,
): ReadRun {
  const { kind, idOutside, body } = request;
  requireRunSize(idOutside ?? 'of the body', body.length, maxRunBytes);
  const members = runMembers(body, 0, body.length, { part: 'the body', maxDepth: maxJsonDepth });
  const run = idOutside ?? nameOf(members) ?? 'of the body';
  return readRun({ kind, run, idOutside, members, ...(kind === 'post' && { newId: newRunId }) });
}

/**
 * Takes the id at the end of dotted_order, or the trace id for a root run; otherwise a new id, and a repeat creates a
 * second run.
 */
function newRunId(reader: MemberReader): string {
  const order = parseDottedOrder(reader.text('dotted_order') ?? '');
  if ('runId' in order) return order.runId;
  const rootId = reader.uuid('parent_run_id') === undefined ? reader.uuid('trace_id') : undefined;
  return rootId ?? uuidv7();
}

/** The id as given in the body, to name the run in an error; truncated, because it may be any string. */
export function nameOf({ id }: { readonly id?: JsonValue | undefined }): string | undefined {
  return id?.kind === 'string' ? id.bytes.toString('utf8', 1, Math.min(id.bytes.length - 1, 65)) : undefined;
}

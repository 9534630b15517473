import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Config } from '../../../infra/config/settings.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { KeySet } from '../json/key-set.ts';
import { scanArrayItems, scanObject } from '../json/scan.ts';
import { type AcceptPorts, acceptDrafts } from './accept-drafts.ts';
import type { Acceptance, Rejection, RunDraft } from './draft.ts';
import type { Sender } from './publish-runs.ts';
import { nameOf, runMembers } from './read-json-run.ts';
import { draftOfBatch, readRun } from './read-run.ts';
import { rejectionOf } from './rejection.ts';

/** Others get their turn of the event loop in between. */
const itemsPerTurn = 1_000;

interface Item {
  readonly kind: 'post' | 'patch';
  readonly start: number;
  readonly end: number;
}

/**
 * `POST /runs/batch`: `{"post": [run, …], "patch": [run, …]}`, either list may be missing.
 * @throws INVALID_JSON, INVALID_UTF8, TOO_DEEP and TOO_MANY_PARTS of the body as a whole, and what `acceptDrafts` throws.
 */
export async function acceptBatch(sender: Sender, body: Buffer, ports: AcceptPorts): Promise<Acceptance> {
  const rejected: Rejection[] = [];
  const drafts: RunDraft[] = [];
  for (const [index, item] of itemsOf(body, ports.config).entries()) {
    if (index % itemsPerTurn === itemsPerTurn - 1) await nextTurn();
    const part = `${item.kind} ${index}`;
    let name = part;
    try {
      const members = runMembers(body, item.start, item.end, { part, maxDepth: ports.config.maxJsonDepth });
      name = nameOf(members) ?? part;
      drafts.push(draftOfBatch(readRun({ kind: item.kind, run: name, members })));
    } catch (error) {
      rejected.push(rejectionOf(name, error));
    }
  }
  return acceptDrafts(sender, drafts, rejected, ports);
}

const lists = new KeySet(['post', 'patch']);

function itemsOf(body: Buffer, { maxJsonDepth, maxParts }: Pick<Config, 'maxJsonDepth' | 'maxParts'>): Item[] {
  const options = { part: 'the body', maxDepth: maxJsonDepth };
  const items: Item[] = [];
  for (const [index, list] of scanObject(body, 0, body.length, lists, options).entries()) {
    const kind = lists.keys[index] as Item['kind'];
    if (list === undefined || list.kind === 'null') continue;
    if (list.kind !== 'array') throw fault('BAD_REQUEST', { reason: `${kind} has to be a list of runs.` });
    for (const { start, end } of scanArrayItems(body, list.start, list.end, maxParts - items.length, options)) {
      items.push({ kind, start, end });
    }
    if (items.length > maxParts) throw fault('TOO_MANY_PARTS', { limitParts: maxParts, limit: 'RUNLAKE_MAX_PARTS' });
  }
  return items;
}

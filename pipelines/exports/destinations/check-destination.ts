import { randomUUID } from 'node:crypto';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { destinationFault, type ObjectStep } from '../../../infra/objects/destination-fault.ts';
import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-options.ts';

/** Somebody waits for the answer: a store that hangs is told after the first of these. */
export const checkLimits: S3Limits = { attempts: 2, connectMs: 3_000, silenceMs: 5_000, callMs: 6_000 };

const purpose = 'Runlake wrote this to see whether exports can be written here. It may be deleted.';

export interface DestinationCheck {
  readonly step: ObjectStep;
  /** `forbidden`: a right that exports do without. */
  readonly outcome: 'passed' | 'forbidden';
}

/**
 * Sees whether exports can be written: reach the place, write a small object below `tmp/`, read it back, delete it. Rights to
 * read and to delete need not be there; without the latter the object stays.
 *
 * @returns what each step found. @throws the fault of the step that fails, which names it.
 */
export async function checkDestination(store: ObjectStore): Promise<DestinationCheck[]> {
  const id = randomUUID();
  const key = `tmp/${id}.txt`;
  const body = Buffer.from(`${purpose}\n${id}\n`);
  await store.reach();
  await store.put(key, body, { contentType: 'text/plain; charset=utf-8' });
  const read = await unlessForbidden(async () => {
    const found = await store.get(key, { maxBytes: body.length + 1 }).catch(asMissing);
    if (found === undefined || !found.equals(body)) {
      const reason = found === undefined ? 'it is not there' : 'it reads otherwise';
      throw destinationFault('DESTINATION_OBJECT_DAMAGED', { step: 'read', where: store.pathOf(key) }, reason);
    }
  });
  const deleted = await unlessForbidden(() => store.delete(key));
  return [
    { step: 'reach', outcome: 'passed' },
    { step: 'write', outcome: 'passed' },
    { step: 'read', outcome: read },
    { step: 'delete', outcome: deleted },
  ];
}

async function unlessForbidden(work: () => Promise<void>): Promise<DestinationCheck['outcome']> {
  try {
    await work();
    return 'passed';
  } catch (error) {
    if (isRunlakeError(error) && error.code === 'DESTINATION_ACCESS_DENIED') return 'forbidden';
    throw error;
  }
}

function asMissing(error: unknown): undefined {
  if (isRunlakeError(error) && error.code === 'DESTINATION_OBJECT_MISSING') return undefined;
  throw error;
}

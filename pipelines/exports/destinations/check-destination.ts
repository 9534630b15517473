import { randomUUID } from 'node:crypto';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { createDestinationError, type ObjectStore } from '../../../infra/objects/object-store.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-connection.ts';
import { type DestinationCredentials, type DestinationDeps, readDestination } from './destination.ts';
import { connectDestination, type DestinationSettings, openDestination } from './open-destination.ts';

/** Timeouts for a check. They are short, because a caller is waiting for the response. */
const checkLimits: S3Limits = { attempts: 2, connectTimeoutMs: 3_000, idleTimeoutMs: 5_000, callTimeoutMs: 6_000 };

const testObjectText = 'Runlake wrote this object to check that exports can be written here. It can be deleted.';

export const checkSteps = ['reach', 'write', 'read', 'delete'] as const;

interface DestinationCheck {
  readonly step: (typeof checkSteps)[number];
  /** `forbidden` means that the permission is missing, but is not needed for exports. */
  readonly outcome: 'passed' | 'forbidden' | 'failed' | 'not_run';
  /** Why the step failed. */
  readonly error?: RunlakeError;
}

/**
 * Checks whether Runlake can write exports to an object store: connects to it, writes a small object below `tmp/`,
 * reads it back and deletes it. The permissions to read and to delete are optional; without the permission to delete,
 * the object remains.
 *
 * @returns the outcome of each step.
 * @throws the error of the step that failed; the error names the step.
 */
export async function checkDestination(store: ObjectStore): Promise<DestinationCheck[]> {
  const id = randomUUID();
  const key = `tmp/${id}.txt`;
  const body = Buffer.from(`${testObjectText}\n${id}\n`);
  await store.ping();
  await store.put(key, body, { contentType: 'text/plain; charset=utf-8' });
  const read = await runOptionalStep(async () => {
    const found = await store.get(key, { maxBytes: body.length + 1 }).catch(ignoreMissingObject);
    if (found === undefined || !found.equals(body)) {
      const reason = found === undefined ? 'the object is missing' : 'its content differs from what was written';
      throw createDestinationError(
        'DESTINATION_OBJECT_DAMAGED',
        { step: 'read', location: store.resolvePath(key) },
        reason,
      );
    }
  });
  const deleted = await runOptionalStep(() => store.delete(key));
  return [
    { step: 'reach', outcome: 'passed' },
    { step: 'write', outcome: 'passed' },
    { step: 'read', outcome: read },
    { step: 'delete', outcome: deleted },
  ];
}

async function runOptionalStep(work: () => Promise<void>): Promise<DestinationCheck['outcome']> {
  try {
    await work();
    return 'passed';
  } catch (error) {
    if (isRunlakeError(error) && error.code === 'DESTINATION_ACCESS_DENIED') return 'forbidden';
    throw error;
  }
}

function ignoreMissingObject(error: unknown): undefined {
  if (isRunlakeError(error) && error.code === 'DESTINATION_OBJECT_MISSING') return undefined;
  throw error;
}

/**
 * Checks a destination with credentials that are not stored yet.
 *
 * @throws OVERLOADED if too many checks of the workspace are in flight; errors of {@link connectDestination} and {@link
 *   checkDestination}.
 */
export async function tryDestination(
  deps: DestinationDeps,
  workspaceId: string,
  settings: DestinationSettings,
  credentials: DestinationCredentials | undefined,
): Promise<void> {
  await deps.checks.runCheck(workspaceId, async () => {
    const store = connectDestination(deps, settings, credentials, deps.limits ?? checkLimits);
    try {
      await checkDestination(store);
    } finally {
      await store.close();
    }
  });
}

/**
 * Repeats the checks of {@link checkDestination} with the stored credentials. The steps after a failed one are not run.
 *
 * @throws NOT_FOUND; OVERLOADED as {@link tryDestination}; errors of {@link openDestination}.
 */
export async function recheckDestination(
  deps: DestinationDeps,
  workspaceId: string,
  id: string,
): Promise<DestinationCheck[]> {
  // Credentials are sealed for the id as stored, and the caller may have sent it in upper case.
  const { id: destinationId } = await readDestination(deps.database, workspaceId, id);
  return deps.checks.runCheck(workspaceId, async () => {
    const limits = deps.limits ?? checkLimits;
    const store = await openDestination({ ...deps, limits }, { workspaceId, destinationId });
    try {
      return await checkDestination(store);
    } catch (error) {
      return describeFailure(error);
    } finally {
      await store.close();
    }
  });
}

function describeFailure(error: unknown): DestinationCheck[] {
  if (!isRunlakeError(error) || !error.code.startsWith('DESTINATION_')) throw error;
  // An address that is not allowed is refused before the first step.
  const failed = Math.max(0, checkSteps.indexOf(error.parameters.step as DestinationCheck['step']));
  return checkSteps.map((step, index) => {
    if (index === failed) return { step, outcome: 'failed', error };
    return { step, outcome: index < failed ? 'passed' : 'not_run' };
  });
}

/**
 * Writes a small object that a stalled writer of the same name cannot write over later.
 *
 * Invariant, on a store that knows conditional writes: each write names what it replaces, nothing or one ETag. So of two writers of a name
 * the one that was slower finds something else there, and asks its caller whether it may still write.
 *
 *   1. Write if nothing is there.
 *   2. Something is: `mayReplace` confirms that the caller may still write, for example that its lease is not lost.
 *   3. Write if the object that was found is still there; else begin with 2 again.
 * A store that ignores the condition, refuses it, or may not be asked for an ETag, gets a plain write after 2; the check before the
 * manifest of an export (`verify-files.ts`) finds a file that was written over.
 */
import { isRunlakeError } from '../../errors/runlake-error.ts';
import { destinationFault, type ObjectCall } from '../destination-fault.ts';
import type { ObjectStat, UploadOptions } from '../object-store.ts';
import type { S3Connection } from './s3-connection.ts';
import { statusOf } from './s3-faults.ts';
import { type SmallObject, uploadSmall, type WriteCondition } from './upload-small.ts';

const maxAttempts = 5;

type Outcome = 'stored' | 'refused' | 'unknown condition';

export async function putOnce(
  connection: S3Connection,
  call: ObjectCall,
  object: SmallObject,
  {
    signal,
    mayReplace,
    now,
  }: Pick<UploadOptions, 'signal' | 'mayReplace'> & { readonly now: () => Promise<ObjectStat> },
): Promise<void> {
  let condition: WriteCondition | undefined = { IfNoneMatch: '*' };
  for (let attempt = 0; attempt < maxAttempts; attempt++) {
    const outcome = await put(condition);
    if (outcome === 'stored') return;
    await mayReplace?.();
    condition = outcome === 'refused' ? await conditionOf(now) : undefined;
  }
  throw destinationFault('DESTINATION_UNAVAILABLE', call, 'others write the same object all the time');

  async function put(named: WriteCondition | undefined): Promise<Outcome> {
    try {
      await uploadSmall(connection, call, object, { signal }, named);
      return 'stored';
    } catch (error) {
      const status = named && isRunlakeError(error) ? statusOf(error.cause) : undefined;
      // 409: another conditional write of the name is under way.
      if (status === 412 || status === 409) return 'refused';
      if (status === 400 || status === 501) return 'unknown condition';
      throw error;
    }
  }
}

/** @returns undefined if the store does not say what is there. */
async function conditionOf(now: () => Promise<ObjectStat>): Promise<WriteCondition | undefined> {
  try {
    const { etag } = await now();
    return etag === undefined ? undefined : { IfMatch: etag };
  } catch (error) {
    if (!isRunlakeError(error)) throw error;
    if (error.code === 'DESTINATION_OBJECT_MISSING') return { IfNoneMatch: '*' };
    if (error.code === 'DESTINATION_ACCESS_DENIED') return undefined;
    throw error;
  }
}

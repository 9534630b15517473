/**
 * Writes an object so that a stalled writer of the same key cannot overwrite it later.
 *
 * Invariant, on a store with conditional writes: each write has a condition: either no object exists, or the object has
 * a given ETag. Of two writers of a key, the slower one therefore finds a different object, and asks its caller whether
 * it may still write.
 *
 *   1. Write on the condition that no object exists.
 *   2. If one exists, `mayReplace` confirms that the caller may still write, for example that its lease is not lost.
 *   3. Write on the condition that the same object still exists; otherwise repeat step 2. If the store ignores or
 *      rejects conditions, or the ETag cannot be read, step 3 is an unconditional write; the check before the manifest
 *      of an export (`pipelines/exports/manifest.ts`) then detects an overwritten file.
 *
 * A write is one PutObject, or the completion of a multipart upload (`upload-parts.ts`).
 */
import { isRunlakeError } from '../../errors/runlake-error.ts';
import { destinationError, isMissing, type ObjectCall, type ObjectStat, type UploadOptions } from '../object-store.ts';
import { getStatus } from './s3-error.ts';

/** Condition on the existing object. */
export interface WriteCondition {
  /** No object exists. */
  readonly IfNoneMatch?: '*';
  /** The object has this ETag. */
  readonly IfMatch?: string;
}

export interface WriteOnceOptions extends Pick<UploadOptions, 'mayReplace'> {
  /** Reads size and ETag of the existing object. */
  readonly now: () => Promise<ObjectStat>;
}

const maxAttempts = 5;

type Outcome = 'stored' | 'refused' | 'unknown condition';

/**
 * @param write Writes the object if the condition holds.
 * @throws errors of `write`, `now` and `mayReplace`; DESTINATION_UNAVAILABLE if other clients keep writing the object.
 */
export async function writeOnce(
  call: ObjectCall,
  write: (condition: WriteCondition) => Promise<void>,
  { mayReplace, now }: WriteOnceOptions,
): Promise<void> {
  let condition: WriteCondition | undefined = { IfNoneMatch: '*' };
  for (let attempt = 0; attempt < maxAttempts; attempt++) {
    const outcome = await tryWrite(condition);
    if (outcome === 'stored') return;
    await mayReplace?.();
    condition = outcome === 'refused' ? await readCondition(now) : undefined;
  }
  throw destinationError('DESTINATION_UNAVAILABLE', call, 'other clients keep writing the same object');

  async function tryWrite(named: WriteCondition | undefined): Promise<Outcome> {
    try {
      await write(named ?? {});
      return 'stored';
    } catch (error) {
      const status = named && isRunlakeError(error) ? getStatus(error.cause) : undefined;
      // 409: another conditional write of the same key is in progress.
      if (status === 412 || status === 409) return 'refused';
      if (status === 400 || status === 501) return 'unknown condition';
      throw error;
    }
  }
}

/** @returns undefined if the ETag of the current object cannot be read. */
async function readCondition(now: () => Promise<ObjectStat>): Promise<WriteCondition | undefined> {
  try {
    const { etag } = await now();
    return etag === undefined ? undefined : { IfMatch: etag };
  } catch (error) {
    if (isMissing(error)) return { IfNoneMatch: '*' };
    if (isRunlakeError(error) && error.code === 'DESTINATION_ACCESS_DENIED') return undefined;
    throw error;
  }
}

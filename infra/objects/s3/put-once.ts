/**
 * Writes a small object so that a stalled writer of the same key cannot overwrite it later.
 *
 * Invariant, on a store with conditional writes: each write has a condition: either no object exists, or the object has
 * a given ETag. Of two writers of a key, the slower one therefore finds a different object, and asks its caller whether
 * it may still write.
 *
 *   1. Write on the condition that no object exists.
 *   2. If one exists, `mayReplace` confirms that the caller may still write, for example that its lease is not lost.
 *   3. Write on the condition that the same object still exists; otherwise repeat step 2. If the store ignores or
 *      rejects conditions, or the ETag cannot be read, step 3 is an unconditional write; the check before the manifest
 *      of an export (`verify-files.ts`) then detects an overwritten file.
 */
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { isRunlakeError } from '../../errors/runlake-error.ts';
import { destinationError, isMissing, type ObjectCall, type ObjectStat, type UploadOptions } from '../object-store.ts';
import { defaultContentType, type S3CallOptions, type S3Connection, setPayloadHash } from './s3-connection.ts';
import { getStatus, notS3 } from './s3-error.ts';

interface SmallObject {
  /** Key in the bucket. */
  readonly name: string;
  readonly body: Uint8Array;
  /** Hash of the body, in hexadecimal. */
  readonly sha256: string;
  readonly contentType?: string | undefined;
}

/** Condition on the existing object. */
interface WriteCondition {
  /** No object exists. */
  readonly IfNoneMatch?: '*';
  /** The object has this ETag. */
  readonly IfMatch?: string;
}

/** Sends one PutObject. A response without an ETag means that nothing was stored. */
export async function uploadSmall(
  connection: S3Connection,
  call: ObjectCall,
  { name, body, sha256, contentType = defaultContentType }: SmallObject,
  { signal }: S3CallOptions,
  condition: WriteCondition = {},
): Promise<void> {
  const { ETag } = await connection.send(
    call,
    (run) => {
      const command = new PutObjectCommand({
        Bucket: connection.bucket,
        Key: name,
        Body: body,
        ContentLength: body.length,
        ContentType: contentType,
        ...condition,
      });
      setPayloadHash(command, sha256);
      return run(command);
    },
    { signal, bytes: body.length },
  );
  if (ETag === undefined) throw notS3(call, connection.location, 'the response has no ETag');
}

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
    condition = outcome === 'refused' ? await readCondition(now) : undefined;
  }
  throw destinationError('DESTINATION_UNAVAILABLE', call, 'other clients keep writing the same object');

  async function put(named: WriteCondition | undefined): Promise<Outcome> {
    try {
      await uploadSmall(connection, call, object, { signal }, named);
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

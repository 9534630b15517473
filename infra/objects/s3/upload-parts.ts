/**
 * A multipart upload.
 *
 * Invariant: the object is stored completely or not at all. After a failure, the store keeps no parts, unless the
 * permission to abort is missing or the store does not respond.
 *
 * 1. Create the upload, and let the caller record its id.
 * 2. Read the file from start to end and send it in parts; at most `maxPartsInFlight` parts are in memory and in flight.
 * 3. Complete the upload when all parts are stored, unless another worker has written the object. If step 1 was
 *    retried because its response was lost, a second upload may exist, which is aborted. After any failure: cancel the
 *    parts in flight, wait for them, and abort the upload.
 */
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  ListMultipartUploadsCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { isRunlakeError, isTransient } from '../../errors/runlake-error.ts';
import { raceWithAbort, withTimeout } from '../../timeouts/with-timeout.ts';
import {
  createDestinationError,
  fillFromFile,
  isMissingObjectError,
  type ObjectCall,
  type ObjectStat,
  type UploadOptions,
  type UploadResult,
} from '../object-store.ts';
import {
  createNotS3Error,
  defaultContentType,
  getStatus,
  type S3CallOptions,
  type S3Connection,
  setPayloadHash,
} from './s3-connection.ts';

const MIB = 1024 ** 2;
/** Maximum number of parts of an upload in the S3 API. */
const maxParts = 10_000;
const minPartBytes = 8 * MIB;
const maxPartsInFlight = 3;
/** Timeouts for aborting an upload: after a failure, and after its signal was aborted. */
const abortTimeoutMs = 10_000;
const shortAbortTimeoutMs = 1_000;

/** Returns the smallest part size for which the file does not have more than the maximum number of parts. */
function choosePartSize(fileBytes: number): number {
  return Math.max(minPartBytes, Math.ceil(fileBytes / maxParts));
}

interface LargeObject {
  /** Key in the bucket. */
  readonly name: string;
  readonly file: FileHandle;
  readonly bytes: number;
}

interface UploadPart {
  readonly PartNumber: number;
  readonly ETag: string;
}

export async function uploadParts(
  connection: S3Connection,
  call: ObjectCall,
  object: LargeObject,
  options: UploadOptions & ConditionalWriteOptions,
): Promise<UploadResult> {
  const { id, attempts } = await begin(connection, call, object, options);
  try {
    await options.recordUpload?.(id);
    const { parts, sha256 } = await sendParts(connection, call, object, id, options);
    const complete = async (condition: WriteCondition) => {
      const command = new CompleteMultipartUploadCommand({
        Bucket: connection.bucket,
        Key: object.name,
        UploadId: id,
        MultipartUpload: { Parts: parts },
        ...condition,
      });
      const { ETag, Location, Bucket } = await connection.send(call, (run) => run(command), { signal: options.signal });
      // An error may follow the status 200. The client only finds one at the very end of the body.
      if (ETag === undefined && Location === undefined && Bucket === undefined) {
        throw createDestinationError(
          'DESTINATION_UNAVAILABLE',
          call,
          'the store did not confirm the end of the upload',
        );
      }
    };
    await writeConditionally(call, complete, options);
    if (attempts > 1) await abortObjectUploads(connection, call, object.name, [], options);
    return { bytes: object.bytes, sha256 };
  } catch (error) {
    // After the timeout the abort continues in the background.
    const timeoutMs = options.signal?.aborted ? shortAbortTimeoutMs : abortTimeoutMs;
    await withTimeout(abortUpload(connection, call, object.name, id), timeoutMs).catch(() => undefined);
    throw error;
  }
}

/**
 * Creates the upload. If the caller aborts, the store may still create the upload; this function then waits for its id
 * in the background and aborts it.
 */
async function begin(
  connection: S3Connection,
  call: ObjectCall,
  { name }: LargeObject,
  { signal }: S3CallOptions,
): Promise<{ readonly id: string; readonly attempts: number }> {
  signal?.throwIfAborted();
  const created = connection.send(call, (run) =>
    run(new CreateMultipartUploadCommand({ Bucket: connection.bucket, Key: name, ContentType: defaultContentType })),
  );
  const { UploadId: id, $metadata } = await raceWithAbort(created, signal).catch((error) => {
    void created
      .then(({ UploadId: late }) => (late === undefined ? undefined : abortUpload(connection, call, name, late)))
      .catch(() => undefined);
    throw error;
  });
  if (id === undefined) throw createNotS3Error(call, connection.location, 'the response has no upload id');
  return { id, attempts: $metadata.attempts ?? 1 };
}

async function sendParts(
  connection: S3Connection,
  call: ObjectCall,
  { name, file, bytes }: LargeObject,
  id: string,
  { signal, onProgress }: UploadOptions,
): Promise<{ parts: UploadPart[]; sha256: string }> {
  const whole = createHash('sha256');
  const partBytes = choosePartSize(bytes);
  const count = Math.ceil(bytes / partBytes);
  const failed = new AbortController();
  const abortParts = () => failed.abort(signal?.reason);
  signal?.addEventListener('abort', abortParts, { once: true });
  if (signal?.aborted) abortParts();
  const parts: UploadPart[] = [];
  let uploadedBytes = 0;
  const sendPart = async (number: number, body: Buffer, sha256: string) => {
    const { ETag } = await connection.send(
      call,
      (run) => {
        const command = new UploadPartCommand({
          Bucket: connection.bucket,
          Key: name,
          UploadId: id,
          PartNumber: number,
          Body: body,
          ContentLength: body.length,
        });
        setPayloadHash(command, sha256);
        return run(command);
      },
      { signal: failed.signal, bytes: body.length },
    );
    if (ETag === undefined) throw createNotS3Error(call, connection.location, 'the response has no ETag');
    parts[number - 1] = { PartNumber: number, ETag };
    uploadedBytes += body.length;
    onProgress?.(uploadedBytes);
  };
  const buffers: Buffer[] = Array.from({ length: Math.min(maxPartsInFlight, count) }, () =>
    Buffer.allocUnsafe(partBytes),
  );
  const inFlight = new Set<Promise<void>>();
  try {
    for (let number = 1; number <= count && !failed.signal.aborted; number++) {
      const buffer = buffers.pop() as Buffer;
      const part = createHash('sha256');
      const body = buffer.subarray(0, Math.min(partBytes, bytes - (number - 1) * partBytes));
      await fillFromFile(file, body, (number - 1) * partBytes, [whole, part]);
      const sending = sendPart(number, body, part.digest('hex'))
        .catch((error) => failed.abort(error))
        .finally(() => {
          buffers.push(buffer);
          inFlight.delete(sending);
        });
      inFlight.add(sending);
      if (buffers.length === 0) await Promise.race(inFlight);
    }
  } catch (error) {
    failed.abort(error);
  } finally {
    await Promise.all(inFlight);
    signal?.removeEventListener('abort', abortParts);
  }
  failed.signal.throwIfAborted();
  return { parts, sha256: whole.digest('hex') };
}

/** Aborts a multipart upload if it still exists and the credentials permit it. @throws transient errors; the reason of `signal`. */
async function abortUpload(
  connection: S3Connection,
  call: ObjectCall,
  name: string,
  id: string,
  { signal }: S3CallOptions = {},
): Promise<void> {
  const command = new AbortMultipartUploadCommand({ Bucket: connection.bucket, Key: name, UploadId: id });
  await ignoreRefusal(
    connection.send(call, (run) => run(command), { signal }),
    signal,
  );
}

/** Returns undefined if the store refuses the call for good, such as without a permission, or if the upload has ended. */
async function ignoreRefusal<Result>(sent: Promise<Result>, signal?: AbortSignal): Promise<Result | undefined> {
  try {
    return await sent;
  } catch (error) {
    signal?.throwIfAborted();
    const hasEnded = isRunlakeError(error) && (error.cause as Error | undefined)?.name === 'NoSuchUpload';
    if (isTransient(error) && !hasEnded) throw error;
    return undefined;
  }
}

/**
 * Aborts multipart uploads to an object: the known uploads and, if the credentials permit listing, all other uploads.
 * Listing finds uploads whose id was never recorded, because the process died or the response was lost.
 *
 * @throws transient errors; the reason of `signal`.
 */
export async function abortObjectUploads(
  connection: S3Connection,
  call: ObjectCall,
  name: string,
  known: readonly string[],
  { signal }: S3CallOptions = {},
): Promise<void> {
  const listed = await listObjectUploads(connection, call, name, signal);
  for (const id of new Set([...known, ...listed])) await abortUpload(connection, call, name, id, { signal });
}

async function listObjectUploads(
  connection: S3Connection,
  call: ObjectCall,
  name: string,
  signal: AbortSignal | undefined,
): Promise<string[]> {
  // The list is sorted and the key itself sorts before longer keys with the same prefix, so the first page is enough.
  const command = new ListMultipartUploadsCommand({ Bucket: connection.bucket, Prefix: name });
  const listed = await ignoreRefusal(
    connection.send(call, (run) => run(command), { signal }),
    signal,
  );
  return (listed?.Uploads ?? []).flatMap(({ Key, UploadId }) =>
    Key === name && UploadId !== undefined ? [UploadId] : [],
  );
}

/** Condition of a write, on the existing object. */
export interface WriteCondition {
  /** No object exists. */
  readonly IfNoneMatch?: '*';
  /** The object has this ETag. */
  readonly IfMatch?: string;
}

export interface ConditionalWriteOptions extends Pick<UploadOptions, 'confirmReplace'> {
  /** Reads size and ETag of the existing object. */
  readonly now: () => Promise<ObjectStat>;
}

const maxAttempts = 5;

type Outcome = 'stored' | 'refused' | 'unknown condition';

/**
 * Writes an object so that a stalled writer of the same key cannot overwrite it later.
 *
 * Invariant, on a store with conditional writes: each write has a condition: either no object exists, or the object has
 * a given ETag. Of two writers of a key, the slower one therefore finds a different object, and asks its caller whether
 * it may still write.
 *
 *   1. Write on the condition that no object exists.
 *   2. If one exists, `confirmReplace` confirms that the caller may still write, for example that its lease is not lost.
 *   3. Write on the condition that the same object still exists; otherwise repeat step 2. If the store ignores or
 *      rejects conditions, or the ETag cannot be read, step 3 is an unconditional write; the check before the manifest
 *      of an export (`pipelines/exports/manifest.ts`) then detects an overwritten file.
 *
 * A write is one PutObject, or the completion of a multipart upload.
 *
 * @param write Writes the object if the condition holds.
 * @throws errors of `write`, `now` and `confirmReplace`; DESTINATION_UNAVAILABLE if other clients keep writing the object.
 */
export async function writeConditionally(
  call: ObjectCall,
  write: (condition: WriteCondition) => Promise<void>,
  { confirmReplace, now }: ConditionalWriteOptions,
): Promise<void> {
  let condition: WriteCondition | undefined = { IfNoneMatch: '*' };
  for (let attempt = 0; attempt < maxAttempts; attempt++) {
    const outcome = await tryWrite(condition);
    if (outcome === 'stored') return;
    await confirmReplace?.();
    condition = outcome === 'refused' ? await readCondition(now) : undefined;
  }
  throw createDestinationError('DESTINATION_UNAVAILABLE', call, 'other clients keep writing the same object');

  async function tryWrite(named: WriteCondition | undefined): Promise<Outcome> {
    try {
      await write(named ?? {});
      return 'stored';
    } catch (error) {
      if (named === undefined || !isRunlakeError(error)) throw error;
      const status = getStatus(error.cause);
      // 409: another conditional write of the same key is in progress.
      if (status === 412 || status === 409) return 'refused';
      // The object with this ETag has been deleted.
      if (named.IfMatch !== undefined && (error.cause as Error | undefined)?.name === 'NoSuchKey') return 'refused';
      // A transient error, such as RequestTimeout (400), does not concern the condition. A write without it could replace a
      // newer object.
      if ((status === 400 || status === 501) && error.class !== 'transient') return 'unknown condition';
      throw error;
    }
  }
}

/**
 * Reads the condition that the current object still exists.
 *
 * @returns undefined if the ETag of the current object cannot be read.
 */
async function readCondition(now: () => Promise<ObjectStat>): Promise<WriteCondition | undefined> {
  try {
    const { etag } = await now();
    return etag === undefined ? undefined : { IfMatch: etag };
  } catch (error) {
    if (isMissingObjectError(error)) return { IfNoneMatch: '*' };
    if (isRunlakeError(error) && error.code === 'DESTINATION_ACCESS_DENIED') return undefined;
    throw error;
  }
}

/**
 * A multipart upload.
 *
 * Invariant: the object is stored completely or not at all. After a failure no parts are left, unless the permission to
 * abort is missing or the store does not respond.
 *
 * 1. Create the upload, and let the caller record its id.
 * 2. Read the file from start to end and send it in parts; at most `partsAtOnce` parts are in memory and in flight.
 * 3. Complete the upload when all parts are stored. If step 1 was retried because its response was lost, a second
 *    upload may exist, which is aborted.
 * After any failure: cancel the parts in flight, wait for them, and abort the upload.
 */
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { CompleteMultipartUploadCommand, CreateMultipartUploadCommand, UploadPartCommand } from '@aws-sdk/client-s3';
import { withTimeout } from '../../timeouts/with-timeout.ts';
import { destinationError, type ObjectCall } from '../destination-error.ts';
import type { Uploaded, UploadOptions } from '../object-store.ts';
import { fillFrom } from '../source-file.ts';
import { orAborted } from './or-aborted.ts';
import type { S3CallOptions, S3Connection } from './s3-connection.ts';
import { notS3 } from './s3-error.ts';
import { signedAs } from './signed-as.ts';
import { abortUpload, abortUploadsTo } from './take-back.ts';

const MIB = 1024 ** 2;
/** Limit of the S3 API. */
const maxParts = 10_000;
const minPartBytes = 8 * MIB;
const partsAtOnce = 3;
/** Timeout for aborting an upload, after a failure and after its signal was aborted. */
const abortTimeoutMs = 10_000;
const shortAbortTimeoutMs = 1_000;

/** Returns the smallest part size with which the file has at most the maximum number of parts. */
export function partBytesOf(fileBytes: number): number {
  return Math.max(minPartBytes, Math.ceil(fileBytes / maxParts));
}

export interface LargeObject {
  /** Key in the bucket. */
  readonly name: string;
  readonly file: FileHandle;
  readonly bytes: number;
  readonly contentType: string;
}

interface Part {
  readonly PartNumber: number;
  readonly ETag: string;
}

export async function uploadParts(
  connection: S3Connection,
  call: ObjectCall,
  object: LargeObject,
  options: UploadOptions,
): Promise<Uploaded> {
  const { id, attempts } = await begin(connection, call, object, options);
  try {
    await options.recordUpload?.(id);
    const { parts, sha256 } = await sendParts(connection, call, object, id, options);
    await complete(connection, call, object.name, id, parts, options);
    if (attempts > 1) await abortUploadsTo(connection, call, object.name, [], options);
    return { bytes: object.bytes, sha256 };
  } catch (error) {
    // After the timeout the abort continues in the background.
    const timeoutMs = options.signal?.aborted ? shortAbortTimeoutMs : abortTimeoutMs;
    await withTimeout(abortUpload(connection, call, object.name, id), timeoutMs);
    throw error;
  }
}

/**
 * If the caller aborts, the upload may still be created: this then waits for its id in the background and aborts the upload.
 */
async function begin(
  connection: S3Connection,
  call: ObjectCall,
  { name, contentType }: LargeObject,
  { signal }: S3CallOptions,
): Promise<{ readonly id: string; readonly attempts: number }> {
  signal?.throwIfAborted();
  const created = connection.send(call, (client, abortSignal) =>
    client.send(new CreateMultipartUploadCommand({ Bucket: connection.bucket, Key: name, ContentType: contentType }), {
      abortSignal,
    }),
  );
  const { UploadId: id, $metadata } = await orAborted(created, signal).catch((error) => {
    void created.then(
      ({ UploadId: late }) => (late === undefined ? undefined : abortUpload(connection, call, name, late)),
      () => undefined,
    );
    throw error;
  });
  if (id !== undefined) return { id, attempts: $metadata.attempts ?? 1 };
  const reason = notS3(connection.location, 'the response has no upload id');
  throw destinationError('DESTINATION_ENDPOINT_INVALID', call, reason);
}

async function sendParts(
  connection: S3Connection,
  call: ObjectCall,
  { name, file, bytes }: LargeObject,
  id: string,
  { signal, onProgress }: UploadOptions,
): Promise<{ parts: Part[]; sha256: string }> {
  const whole = createHash('sha256');
  const partBytes = partBytesOf(bytes);
  const count = Math.ceil(bytes / partBytes);
  const failed = new AbortController();
  const giveUp = () => failed.abort(signal?.reason);
  signal?.addEventListener('abort', giveUp, { once: true });
  if (signal?.aborted) giveUp();
  const parts: Part[] = [];
  let arrived = 0;
  const sendPart = async (number: number, body: Buffer, sha256: string) => {
    const { ETag } = await connection.send(
      call,
      (client, abortSignal) => {
        const command = new UploadPartCommand({
          Bucket: connection.bucket,
          Key: name,
          UploadId: id,
          PartNumber: number,
          Body: body,
          ContentLength: body.length,
        });
        signedAs(command, sha256);
        return client.send(command, { abortSignal });
      },
      { signal: failed.signal, bytes: body.length },
    );
    if (ETag === undefined) {
      const reason = notS3(connection.location, 'the response has no ETag');
      throw destinationError('DESTINATION_ENDPOINT_INVALID', call, reason);
    }
    parts[number - 1] = { PartNumber: number, ETag };
    arrived += body.length;
    onProgress?.(arrived);
  };
  const buffers: Buffer[] = Array.from({ length: Math.min(partsAtOnce, count) }, () => Buffer.allocUnsafe(partBytes));
  const inFlight = new Set<Promise<void>>();
  try {
    for (let number = 1; number <= count && !failed.signal.aborted; number++) {
      const buffer = buffers.pop() as Buffer;
      const part = createHash('sha256');
      const body = buffer.subarray(0, Math.min(partBytes, bytes - (number - 1) * partBytes));
      await fillFrom(file, body, (number - 1) * partBytes, [whole, part]);
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
    signal?.removeEventListener('abort', giveUp);
  }
  failed.signal.throwIfAborted();
  return { parts, sha256: whole.digest('hex') };
}

function complete(
  connection: S3Connection,
  call: ObjectCall,
  name: string,
  id: string,
  parts: readonly Part[],
  { signal }: S3CallOptions,
): Promise<unknown> {
  return connection.send(
    call,
    (client, abortSignal) =>
      client.send(
        new CompleteMultipartUploadCommand({
          Bucket: connection.bucket,
          Key: name,
          UploadId: id,
          MultipartUpload: { Parts: [...parts] },
        }),
        { abortSignal },
      ),
    { signal },
  );
}

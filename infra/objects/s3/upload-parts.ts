/**
 * An upload in parts.
 *
 * Invariant: the object is there whole or not at all, and where this fails, no part stays behind unless the right to abort is
 * missing or the store does not answer.
 *
 * 1. Begin the upload, and let the caller note its id.
 * 2. Read the file from its beginning to its end, part by part; at most `partsAtOnce` parts are in memory, each on its way.
 * 3. When all have arrived, put the object together. Where the answer to 1 was lost and it was asked again, there may be an
 *    upload too many, which is aborted.
 * Whatever fails: end the parts that are on their way, wait for that, and abort the upload.
 */
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { CompleteMultipartUploadCommand, CreateMultipartUploadCommand, UploadPartCommand } from '@aws-sdk/client-s3';
import { destinationFault, type ObjectCall } from '../destination-fault.ts';
import type { Uploaded, UploadOptions } from '../object-store.ts';
import { fillFrom } from '../source-file.ts';
import { orAborted } from './or-aborted.ts';
import type { S3CallOptions, S3Connection } from './s3-connection.ts';
import { notS3 } from './s3-faults.ts';
import { signedAs } from './signed-as.ts';
import { takeBack, takeBackAll } from './take-back.ts';

const MIB = 1024 ** 2;
/** Of the S3 API. */
const mostParts = 10_000;
const leastPartBytes = 8 * MIB;
const partsAtOnce = 3;
/** How long an upload that failed waits until it is taken back; one that its caller gave up, less. */
const patientMs = 10_000;
const hurriedMs = 1_000;

/** The smallest size with which a file of so many bytes has few enough parts. */
export function partBytesOf(fileBytes: number): number {
  return Math.max(leastPartBytes, Math.ceil(fileBytes / mostParts));
}

export interface LargeObject {
  /** Within the bucket. */
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
    await options.noteUpload?.(id);
    const { parts, sha256 } = await sendParts(connection, call, object, id, options);
    await complete(connection, call, object.name, id, parts, options);
    if (attempts > 1) await takeBackAll(connection, call, object.name, [], options);
    return { bytes: object.bytes, sha256 };
  } catch (error) {
    // Where this takes longer, it goes on by itself.
    const patienceMs = options.signal?.aborted ? hurriedMs : patientMs;
    await Promise.race([takeBack(connection, call, object.name, id), pause(patienceMs, undefined, { ref: false })]);
    throw error;
  }
}

/** Where the caller gives up meanwhile, the upload may begin all the same: its id is waited for, and it is taken back. */
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
      ({ UploadId: late }) => (late === undefined ? undefined : takeBack(connection, call, name, late)),
      () => undefined,
    );
    throw error;
  });
  if (id !== undefined) return { id, attempts: $metadata.attempts ?? 1 };
  const reason = notS3(connection.place, 'what it answered names no upload');
  throw destinationFault('DESTINATION_ENDPOINT_INVALID', call, reason);
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
      const reason = notS3(connection.place, 'what it answered names no stored part');
      throw destinationFault('DESTINATION_ENDPOINT_INVALID', call, reason);
    }
    parts[number - 1] = { PartNumber: number, ETag };
    arrived += body.length;
    onProgress?.(arrived);
  };
  const buffers: Buffer[] = Array.from({ length: Math.min(partsAtOnce, count) }, () => Buffer.allocUnsafe(partBytes));
  const underWay = new Set<Promise<void>>();
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
          underWay.delete(sending);
        });
      underWay.add(sending);
      if (buffers.length === 0) await Promise.race(underWay);
    }
  } catch (error) {
    failed.abort(error);
  } finally {
    await Promise.all(underWay);
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

import { AbortMultipartUploadCommand, ListMultipartUploadsCommand } from '@aws-sdk/client-s3';
import type { ObjectCall } from '../destination-error.ts';
import type { S3CallOptions, S3Connection } from './s3-connection.ts';

/** Aborts a multipart upload, if the credentials permit it. Rejects only if `signal` is aborted. */
export async function abortUpload(
  connection: S3Connection,
  call: ObjectCall,
  name: string,
  id: string,
  { signal }: S3CallOptions = {},
): Promise<void> {
  const command = () => new AbortMultipartUploadCommand({ Bucket: connection.bucket, Key: name, UploadId: id });
  try {
    await connection.send(call, (client, abortSignal) => client.send(command(), { abortSignal }), { signal });
  } catch {
    signal?.throwIfAborted();
  }
}

/**
 * Aborts multipart uploads to an object: the known ones and, if the credentials permit listing, all others. Only the
 * store knows uploads whose process died before it recorded the id, or never received it. Rejects only if `signal` is
 * aborted.
 */
export async function abortUploadsTo(
  connection: S3Connection,
  call: ObjectCall,
  name: string,
  known: readonly string[],
  { signal }: S3CallOptions = {},
): Promise<void> {
  const listed = await uploadsTo(connection, call, name, signal);
  for (const id of new Set([...known, ...listed])) await abortUpload(connection, call, name, id, { signal });
}

async function uploadsTo(
  connection: S3Connection,
  call: ObjectCall,
  name: string,
  signal: AbortSignal | undefined,
): Promise<string[]> {
  // The list is sorted and the key itself sorts before longer keys with the same prefix, so the first page is enough.
  const command = () => new ListMultipartUploadsCommand({ Bucket: connection.bucket, Prefix: name });
  try {
    const { Uploads = [] } = await connection.send(
      call,
      (client, abortSignal) => client.send(command(), { abortSignal }),
      { signal },
    );
    return Uploads.flatMap(({ Key, UploadId }) => (Key === name && UploadId !== undefined ? [UploadId] : []));
  } catch {
    signal?.throwIfAborted();
    return [];
  }
}

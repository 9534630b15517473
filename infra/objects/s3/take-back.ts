import { AbortMultipartUploadCommand, ListMultipartUploadsCommand } from '@aws-sdk/client-s3';
import type { ObjectCall } from '../destination-fault.ts';
import type { S3CallOptions, S3Connection } from './s3-connection.ts';

/** Aborts an upload in parts, as far as rights allow. Never rejects, unless `signal` is aborted. */
export async function takeBack(
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
 * Aborts uploads in parts to an object: those that are known, and where they may be listed all others. Of one whose beginner died
 * before it could note the id, or never got the answer that told it, only the store knows. As far as rights allow; never
 * rejects, unless `signal` is aborted.
 */
export async function takeBackAll(
  connection: S3Connection,
  call: ObjectCall,
  name: string,
  known: readonly string[],
  { signal }: S3CallOptions = {},
): Promise<void> {
  const listed = await uploadsTo(connection, call, name, signal);
  for (const id of new Set([...known, ...listed])) await takeBack(connection, call, name, id, { signal });
}

async function uploadsTo(
  connection: S3Connection,
  call: ObjectCall,
  name: string,
  signal: AbortSignal | undefined,
): Promise<string[]> {
  // The name itself comes first of all that begin with it, so that the first page will do.
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

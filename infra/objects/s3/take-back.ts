import { AbortMultipartUploadCommand } from '@aws-sdk/client-s3';
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

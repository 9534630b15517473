import { PutObjectCommand } from '@aws-sdk/client-s3';
import { destinationFault, type ObjectCall } from '../destination-fault.ts';
import type { S3CallOptions, S3Connection } from './s3-connection.ts';
import { notS3 } from './s3-faults.ts';
import { signedAs } from './signed-as.ts';

export interface SmallObject {
  /** Within the bucket. */
  readonly name: string;
  readonly body: Uint8Array;
  /** Of the body, in hexadecimal. */
  readonly sha256: string;
  readonly contentType: string;
}

/** What has to be at the name for the write to happen. */
export interface WriteCondition {
  /** Nothing. */
  readonly IfNoneMatch?: '*';
  /** The object with this ETag. */
  readonly IfMatch?: string;
}

/** One PutObject. An answer without an ETag means that nothing was stored. */
export async function uploadSmall(
  connection: S3Connection,
  call: ObjectCall,
  { name, body, sha256, contentType }: SmallObject,
  { signal }: S3CallOptions,
  condition: WriteCondition = {},
): Promise<void> {
  const { ETag } = await connection.send(
    call,
    (client, abortSignal) => {
      const command = new PutObjectCommand({
        Bucket: connection.bucket,
        Key: name,
        Body: body,
        ContentLength: body.length,
        ContentType: contentType,
        ...condition,
      });
      signedAs(command, sha256);
      return client.send(command, { abortSignal });
    },
    { signal, bytes: body.length },
  );
  if (ETag === undefined) {
    const reason = notS3(connection.place, 'what it answered names no stored object');
    throw destinationFault('DESTINATION_ENDPOINT_INVALID', call, reason);
  }
}

import { PutObjectCommand } from '@aws-sdk/client-s3';
import { destinationError, type ObjectCall } from '../destination-error.ts';
import type { S3CallOptions, S3Connection } from './s3-connection.ts';
import { notS3 } from './s3-error.ts';
import { signedAs } from './signed-as.ts';

export interface SmallObject {
  /** Key in the bucket. */
  readonly name: string;
  readonly body: Uint8Array;
  /** Hash of the body, in hexadecimal. */
  readonly sha256: string;
  readonly contentType: string;
}

/** Condition on the existing object. */
export interface WriteCondition {
  /** No object exists. */
  readonly IfNoneMatch?: '*';
  /** The object has this ETag. */
  readonly IfMatch?: string;
}

/** Sends one PutObject. A response without an ETag means that nothing was stored. */
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
    const reason = notS3(connection.location, 'the response has no ETag');
    throw destinationError('DESTINATION_ENDPOINT_INVALID', call, reason);
  }
}

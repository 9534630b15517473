import { createHash } from 'node:crypto';
import { DeleteObjectCommand, GetObjectCommand, HeadBucketCommand, HeadObjectCommand } from '@aws-sdk/client-s3';
import { isRunlakeError } from '../../errors/runlake-error.ts';
import { destinationFault, type ObjectCall, type ObjectStep } from '../destination-fault.ts';
import { joinKey } from '../object-key.ts';
import type { ObjectStore } from '../object-store.ts';
import { readAtMost } from '../read-at-most.ts';
import { fillFrom, openSource } from '../source-file.ts';
import { openS3Connection } from './s3-connection.ts';
import { isNoBucket, statusOf } from './s3-faults.ts';
import type { S3Options } from './s3-options.ts';
import { takeBackAll } from './take-back.ts';
import { uploadParts } from './upload-parts.ts';
import { uploadSmall } from './upload-small.ts';

/** Files from this size on go up in parts. */
const smallestInParts = 16 * 1024 ** 2;
const binary = 'application/octet-stream';

/** A bucket behind the S3 API. Connects at the first call. */
export function openS3Store(options: S3Options): ObjectStore {
  const connection = openS3Connection(options);
  const { bucket } = connection;
  const nameOf = (key: string) => joinKey(options.prefix, key);
  const pathOf = (key: string) => joinKey(options.isBucketInEndpoint ? undefined : options.bucket, options.prefix, key);
  const callFor = (step: ObjectStep, key: string): ObjectCall => ({ step, where: pathOf(key) });

  return {
    pathOf,
    async reach({ signal } = {}) {
      const whole = options.isBucketInEndpoint ? undefined : options.bucket;
      const call: ObjectCall = { step: 'reach', where: joinKey(connection.place, whole) };
      await connection.send(
        call,
        (client, abortSignal) =>
          client.send(new HeadBucketCommand({ Bucket: bucket }), { abortSignal }).catch((raw) => {
            if (isNoBucket(raw)) {
              throw destinationFault('DESTINATION_BUCKET_NOT_VALID', call, 'there is no such bucket', raw);
            }
            // Any other answer is one. What is wrong, the next step says better: answers to HEAD have no body.
            if ((statusOf(raw) ?? 500) >= 500) throw raw;
          }),
        { signal },
      );
    },
    async put(key, body, { contentType = binary, signal } = {}) {
      const sha256 = createHash('sha256').update(body).digest('hex');
      await uploadSmall(
        connection,
        callFor('write', key),
        { name: nameOf(key), body, sha256, contentType },
        { signal },
      );
    },
    get(key, { maxBytes, signal }) {
      return connection.send(
        callFor('read', key),
        async (client, abortSignal) => {
          const command = new GetObjectCommand({ Bucket: bucket, Key: nameOf(key) });
          const { Body } = await client.send(command, { abortSignal });
          return readAtMost(Body as AsyncIterable<Uint8Array>, maxBytes);
        },
        { signal, bytes: maxBytes },
      );
    },
    async delete(key, { signal } = {}) {
      await connection.send(
        callFor('delete', key),
        (client, abortSignal) =>
          client.send(new DeleteObjectCommand({ Bucket: bucket, Key: nameOf(key) }), { abortSignal }),
        { signal },
      );
    },
    async upload(key, path, uploadOptions = {}) {
      const { signal, onProgress } = uploadOptions;
      const call = callFor('upload', key);
      const name = nameOf(key);
      const file = await openSource(path);
      try {
        const { size: bytes } = await file.stat();
        const contentType = binary;
        if (bytes >= smallestInParts) {
          const uploaded = await uploadParts(connection, call, { name, file, bytes, contentType }, uploadOptions);
          await compareSize(call, name, bytes, signal);
          return uploaded;
        }
        const hash = createHash('sha256');
        const body = Buffer.allocUnsafe(bytes);
        await fillFrom(file, body, 0, [hash]);
        const sha256 = hash.digest('hex');
        await uploadSmall(connection, call, { name, body, sha256, contentType }, { signal });
        onProgress?.(bytes);
        await compareSize(call, name, bytes, signal);
        return { bytes, sha256 };
      } finally {
        await file.close();
      }
    },
    async abortUploads(key, uploadIds, { signal } = {}) {
      await takeBackAll(connection, callFor('upload', key), nameOf(key), uploadIds, { signal });
    },
    async close() {
      connection.close();
    },
  };

  /** Where it may not be read, it is as the store said. @throws DESTINATION_OBJECT_DAMAGED */
  async function compareSize(call: ObjectCall, name: string, bytes: number, signal: AbortSignal | undefined) {
    const asked = connection.send(
      call,
      (client, abortSignal) =>
        client.send(new HeadObjectCommand({ Bucket: bucket, Key: name }), { abortSignal }).catch((raw) => {
          // Moved or deleted by somebody; the store spoke the S3 API a moment ago.
          if (statusOf(raw) === 404) throw destinationFault('DESTINATION_OBJECT_DAMAGED', call, 'it is not there', raw);
          throw raw;
        }),
      { signal },
    );
    const found = await asked.catch((error) => {
      if (isRunlakeError(error) && error.code === 'DESTINATION_ACCESS_DENIED') return undefined;
      throw error;
    });
    if (found === undefined || found.ContentLength === bytes) return;
    const reason = `it has ${found.ContentLength ?? 'no'} bytes, and ${bytes} were sent`;
    throw destinationFault('DESTINATION_OBJECT_DAMAGED', call, reason);
  }
}

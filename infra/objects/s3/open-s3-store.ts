import { createHash } from 'node:crypto';
import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadBucketCommand,
  HeadObjectCommand,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import { isRunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import {
  createDestinationError,
  fillFromFile,
  isMissingObjectError,
  joinKey,
  type ObjectCall,
  type ObjectStat,
  type ObjectStep,
  type ObjectStore,
  openSource,
  readAtMost,
} from '../object-store.ts';
import {
  createNotS3Error,
  defaultContentType,
  getStatus,
  isMissingBucketError,
  openS3Connection,
  type S3CallOptions,
  type S3Connection,
  type S3Options,
  setPayloadHash,
} from './s3-connection.ts';
import { abortObjectUploads, uploadParts, type WriteCondition, writeConditionally } from './upload-parts.ts';

/** Files of at least this size are uploaded in parts. */
const minMultipartBytes = 16 * 1024 ** 2;

/** Opens a bucket with the S3 API. Connects at the first call. */
export function openS3Store(options: S3Options): ObjectStore {
  const connection = openS3Connection(options);
  const { bucket } = connection;
  const resolveKey = (key: string) => joinKey(options.prefix, key);
  const resolvePath = (key: string) =>
    joinKey(options.isBucketInEndpoint ? undefined : options.bucket, options.prefix, key);
  const buildCall = (step: ObjectStep, key: string): ObjectCall => ({ step, location: resolvePath(key) });

  return {
    resolvePath,
    async ping({ signal } = {}) {
      const whole = options.isBucketInEndpoint ? undefined : options.bucket;
      const call: ObjectCall = { step: 'reach', location: joinKey(connection.location, whole) };
      await connection.send(
        call,
        (run) =>
          run(new HeadBucketCommand({ Bucket: bucket })).catch((raw) => {
            if (isMissingBucketError(raw)) {
              throw createDestinationError('DESTINATION_BUCKET_NOT_VALID', call, 'there is no such bucket', raw);
            }
            // Any other response shows that the store is reachable. Responses to HEAD have no body, so the next step
            // reports errors in more detail.
            if ((getStatus(raw) ?? 500) >= 500) throw raw;
          }),
        { signal },
      );
    },
    put(key, body, { contentType, signal } = {}) {
      const sha256 = createHash('sha256').update(body).digest('hex');
      return uploadSmall(
        connection,
        buildCall('write', key),
        { name: resolveKey(key), body, sha256, contentType },
        { signal },
      );
    },
    get(key, { maxBytes, signal }) {
      return connection.send(
        buildCall('read', key),
        async (run) => {
          const { Body } = await run(new GetObjectCommand({ Bucket: bucket, Key: resolveKey(key) }));
          return readAtMost(Body as AsyncIterable<Uint8Array>, maxBytes);
        },
        { signal, bytes: maxBytes },
      );
    },
    stat: (key, { signal } = {}) =>
      readObjectHead(buildCall('read', key), resolveKey(key), signal).catch((error) => {
        if (isMissingObjectError(error)) return undefined;
        throw error;
      }),
    async delete(key, { signal } = {}) {
      const command = new DeleteObjectCommand({ Bucket: bucket, Key: resolveKey(key) });
      await connection.send(buildCall('delete', key), (run) => run(command), { signal });
    },
    async upload(key, path, uploadOptions = {}) {
      const { signal, onProgress } = uploadOptions;
      const call = buildCall('upload', key);
      const name = resolveKey(key);
      const readStat = () => readObjectHead(call, name, signal);
      const file = await openSource(path);
      try {
        const { size: bytes } = await file.stat();
        if (bytes >= minMultipartBytes) {
          const uploaded = await uploadParts(
            connection,
            call,
            { name, file, bytes },
            { ...uploadOptions, now: readStat },
          );
          return { ...uploaded, etag: await verifyAndReadEtag(call, name, bytes, signal) };
        }
        const hash = createHash('sha256');
        const body = Buffer.allocUnsafe(bytes);
        await fillFromFile(file, body, 0, [hash]);
        const sha256 = hash.digest('hex');
        const write = (condition: WriteCondition) =>
          uploadSmall(connection, call, { name, body, sha256 }, { signal }, condition);
        await writeConditionally(call, write, { ...uploadOptions, now: readStat });
        onProgress?.(bytes);
        return { bytes, sha256, etag: await verifyAndReadEtag(call, name, bytes, signal) };
      } finally {
        await file.close();
      }
    },
    abortUploads: (key, uploadIds, { signal } = {}) =>
      abortObjectUploads(connection, buildCall('upload', key), resolveKey(key), uploadIds, { signal }),
    close: async () => connection.close(),
  };

  /** @throws DESTINATION_OBJECT_MISSING, DESTINATION_ACCESS_DENIED */
  async function readObjectHead(call: ObjectCall, name: string, signal: AbortSignal | undefined): Promise<ObjectStat> {
    const { ContentLength, ETag } = await connection.send(
      call,
      (run) =>
        run(new HeadObjectCommand({ Bucket: bucket, Key: name })).catch((raw) => {
          if (getStatus(raw) === 404)
            throw runlakeError('DESTINATION_OBJECT_MISSING', { where: call.location }, { cause: raw });
          throw raw;
        }),
      { signal },
    );
    return { bytes: ContentLength ?? -1, etag: ETag };
  }

  /**
   * Verifies the size of the stored object, if reading is permitted. @returns its ETag. @throws
   * DESTINATION_OBJECT_DAMAGED
   */
  async function verifyAndReadEtag(call: ObjectCall, name: string, bytes: number, signal: AbortSignal | undefined) {
    const found = await readObjectHead(call, name, signal).catch((error) => {
      if (isRunlakeError(error) && error.code === 'DESTINATION_ACCESS_DENIED') return undefined;
      // The upload has just succeeded, so the object has been moved or deleted since then.
      if (isMissingObjectError(error))
        throw createDestinationError('DESTINATION_OBJECT_DAMAGED', call, 'it is not there', error);
      throw error;
    });
    if (found === undefined || found.bytes === bytes) return found?.etag;
    const reason = `it has ${found.bytes} bytes, but ${bytes} were sent`;
    throw createDestinationError('DESTINATION_OBJECT_DAMAGED', call, reason);
  }
}

interface SmallObject {
  /** Key in the bucket. */
  readonly name: string;
  readonly body: Uint8Array;
  /** Hash of the body, in hexadecimal. */
  readonly sha256: string;
  readonly contentType?: string | undefined;
}

/** Sends one PutObject. A response without an ETag means that nothing was stored. */
async function uploadSmall(
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
  if (ETag === undefined) throw createNotS3Error(call, connection.location, 'the response has no ETag');
}

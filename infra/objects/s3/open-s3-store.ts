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
  type UploadOptions,
  type UploadResult,
} from '../object-store.ts';
import {
  createNotS3Error,
  defaultContentType,
  getStatus,
  isMissingBucketError,
  openS3Connection,
  type RunCommand,
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
  const bucketPath = options.isBucketInEndpoint ? undefined : options.bucket;
  const resolvePath = (key: string) => joinKey(bucketPath, options.prefix, key);
  const buildTarget = (step: ObjectStep, key: string): Target => ({
    connection,
    call: { step, location: resolvePath(key) },
    name: joinKey(options.prefix, key),
  });

  return {
    resolvePath,
    ping: ({ signal } = {}) =>
      pingBucket(connection, { step: 'reach', location: joinKey(connection.location, bucketPath) }, signal),
    put(key, body, { contentType, signal } = {}) {
      const sha256 = createHash('sha256').update(body).digest('hex');
      return uploadSmall(buildTarget('write', key), { body, sha256, contentType }, { signal });
    },
    get(key, { maxBytes, signal }) {
      const { call, name } = buildTarget('read', key);
      const command = new GetObjectCommand({ Bucket: connection.bucket, Key: name });
      return connection.send(
        call,
        async (run) => readAtMost((await run(command)).Body as AsyncIterable<Uint8Array>, maxBytes),
        { signal, bytes: maxBytes },
      );
    },
    stat: (key, { signal } = {}) =>
      readObjectHead(buildTarget('read', key), signal).catch((error) => {
        if (isMissingObjectError(error)) return undefined;
        throw error;
      }),
    async delete(key, { signal } = {}) {
      const { call, name } = buildTarget('delete', key);
      const command = new DeleteObjectCommand({ Bucket: connection.bucket, Key: name });
      await connection.send(call, (run) => run(command), { signal });
    },
    upload: (key, path, uploadOptions = {}) => uploadFile(buildTarget('upload', key), path, uploadOptions),
    abortUploads(key, uploadIds, { signal } = {}) {
      const { call, name } = buildTarget('upload', key);
      return abortObjectUploads(connection, call, name, uploadIds, { signal });
    },
    close: async () => connection.close(),
  };
}

/** The object of a call. */
interface Target {
  readonly connection: S3Connection;
  readonly call: ObjectCall;
  /** Key in the bucket. */
  readonly name: string;
}

async function pingBucket(connection: S3Connection, call: ObjectCall, signal: AbortSignal | undefined): Promise<void> {
  const command = new HeadBucketCommand({ Bucket: connection.bucket });
  const ping = (run: RunCommand) =>
    run(command).catch((raw) => {
      if (isMissingBucketError(raw)) {
        throw createDestinationError('DESTINATION_BUCKET_NOT_VALID', call, 'there is no such bucket', raw);
      }
      // Any other response shows that the store is reachable. Responses to HEAD have no body, so the next step
      // reports errors in more detail.
      if ((getStatus(raw) ?? 500) >= 500) throw raw;
    });
  await connection.send(call, ping, { signal });
}

/** @throws DESTINATION_OBJECT_MISSING, DESTINATION_ACCESS_DENIED */
async function readObjectHead(
  { connection, call, name }: Target,
  signal: AbortSignal | undefined,
): Promise<ObjectStat> {
  const command = new HeadObjectCommand({ Bucket: connection.bucket, Key: name });
  const read = (run: RunCommand) =>
    run(command).catch((raw) => {
      if (getStatus(raw) === 404)
        throw runlakeError('DESTINATION_OBJECT_MISSING', { where: call.location }, { cause: raw });
      throw raw;
    });
  const { ContentLength, ETag } = await connection.send(call, read, { signal });
  return { bytes: ContentLength ?? -1, etag: ETag };
}

async function uploadFile(target: Target, path: string, options: UploadOptions): Promise<UploadResult> {
  const { connection, call, name } = target;
  const { signal, onProgress } = options;
  const conditions = { ...options, now: () => readObjectHead(target, signal) };
  const file = await openSource(path);
  try {
    const { size: bytes } = await file.stat();
    if (bytes >= minMultipartBytes) {
      const uploaded = await uploadParts(connection, call, { name, file, bytes }, conditions);
      return { ...uploaded, etag: await verifyAndReadEtag(target, bytes, signal) };
    }
    const hash = createHash('sha256');
    const body = Buffer.allocUnsafe(bytes);
    await fillFromFile(file, body, 0, [hash]);
    const sha256 = hash.digest('hex');
    const write = (condition: WriteCondition) => uploadSmall(target, { body, sha256 }, { signal }, condition);
    await writeConditionally(call, write, conditions);
    onProgress?.(bytes);
    return { bytes, sha256, etag: await verifyAndReadEtag(target, bytes, signal) };
  } finally {
    await file.close();
  }
}

/**
 * Verifies the size of the stored object, if reading is permitted. @returns its ETag. @throws
 * DESTINATION_OBJECT_DAMAGED
 */
async function verifyAndReadEtag(target: Target, bytes: number, signal: AbortSignal | undefined) {
  const createDamagedError = (reason: string, cause?: unknown) =>
    createDestinationError('DESTINATION_OBJECT_DAMAGED', target.call, reason, cause);
  const found = await readObjectHead(target, signal).catch((error) => {
    if (isRunlakeError(error) && error.code === 'DESTINATION_ACCESS_DENIED') return undefined;
    // The upload has just succeeded, so the object has been moved or deleted since then.
    if (isMissingObjectError(error)) throw createDamagedError('it is not there', error);
    throw error;
  });
  if (found === undefined || found.bytes === bytes) return found?.etag;
  throw createDamagedError(`it has ${found.bytes} bytes, but ${bytes} were sent`);
}

interface SmallObject {
  readonly body: Uint8Array;
  /** Hash of the body, in hexadecimal. */
  readonly sha256: string;
  readonly contentType?: string | undefined;
}

/** Sends one PutObject. A response without an ETag means that nothing was stored. */
async function uploadSmall(
  { connection, call, name }: Target,
  { body, sha256, contentType = defaultContentType }: SmallObject,
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

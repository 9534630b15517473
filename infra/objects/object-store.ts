import type { Hash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import type { ErrorCode } from '../errors/catalogue.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../errors/runlake-error.ts';

/**
 * The port of export destinations. Adapters: a bucket with the S3 API (`s3/`) and a local folder (`open-local-store.ts`). The
 * contract suite `test/contract/objects` runs against both.
 *
 * Keys are relative to the store's prefix, with parts joined by `/`. Writes are atomic: a reader of a key sees nothing,
 * the previous object, or the complete new object. Every call throws only RunlakeErrors (`DESTINATION_…`), or the
 * reason of the caller's signal, if that was aborted. After a failed write, the new object may or may not exist.
 */
export interface ObjectStore {
  /** Full path of the object for messages, as `bucket/prefix/key`. */
  resolvePath(key: string): string;
  /** Resolves when the store responds, even if it denies access. */
  ping(options?: ObjectCallOptions): Promise<void>;
  /** Writes a small object in one request; replaces an existing one. */
  put(key: string, body: Uint8Array, options?: PutOptions): Promise<void>;
  /** Returns at most the first `maxBytes` of the object. @throws DESTINATION_OBJECT_MISSING if it does not exist. */
  get(key: string, options: GetOptions): Promise<Buffer>;
  /**
   * Returns size and version of the object, or undefined if it does not exist.
   * @throws DESTINATION_ACCESS_DENIED without read permission. Without list permission, stores also return this error
   *   for missing objects.
   */
  stat(key: string, options?: ObjectCallOptions): Promise<ObjectStat | undefined>;
  /** Deletes the object, if it exists. */
  delete(key: string, options?: ObjectCallOptions): Promise<void>;
  /**
   * Uploads a local file to `key`; replaces an existing object. Large files are uploaded in parts. An upload that fails
   * or is aborted by its signal is cancelled, if the credentials permit it. If reading is permitted, the size of the
   * stored object is verified.
   */
  upload(key: string, path: string, options?: UploadOptions): Promise<UploadResult>;
  /**
   * Cancels multipart uploads to `key` that a crashed process has left behind, if the credentials permit it: the
   * uploads with the given ids and, if the store can list uploads, also uploads whose id was not recorded.
   *
   * @throws transient errors; the reason of the signal.
   */
  abortUploads(key: string, uploadIds: readonly string[], options?: ObjectCallOptions): Promise<void>;
  /** Closes the connections. Running calls fail. */
  close(): Promise<void>;
}

export interface ObjectStat {
  readonly bytes: number;
  /** The ETag as the store returns it. It changes with the content. Undefined if the store returns none. */
  readonly etag: string | undefined;
}

export interface ObjectCallOptions {
  readonly signal?: AbortSignal | undefined;
}

export interface PutOptions extends ObjectCallOptions {
  readonly contentType?: string;
}

export interface GetOptions extends ObjectCallOptions {
  readonly maxBytes: number;
}

export interface UploadOptions extends ObjectCallOptions {
  /**
   * Called with the id of a multipart upload before the first part is sent. The upload continues when the returned
   * promise resolves.
   */
  readonly recordUpload?: (uploadId: string) => Promise<void>;
  /**
   * Called before an existing object is overwritten, on stores with conditional writes. Rejects if the caller may no
   * longer write.
   */
  readonly confirmReplace?: () => Promise<void>;
  /** Called with the number of bytes uploaded so far. */
  readonly onProgress?: (bytes: number) => void;
}

export interface UploadResult {
  readonly bytes: number;
  /** Hash of the whole file, in hexadecimal. */
  readonly sha256: string;
  /**
   * ETag of the object, as in {@link ObjectStore.stat}; undefined if the store returns none, or without read
   * permission.
   */
  readonly etag?: string | undefined;
}

/** Operation of a call. Destination checks use the same names. */
export type ObjectStep = 'reach' | 'write' | 'read' | 'delete' | 'upload';

export interface ObjectCall {
  readonly step: ObjectStep;
  /** The object or location, in a form that the owner of the destination recognises. */
  readonly location: string;
}

type DestinationCode = Extract<ErrorCode, `DESTINATION_${string}`>;

/** Creates the error of a failed call to an object store. The owner of the destination sees `reason`. */
export function createDestinationError(
  code: DestinationCode,
  { step, location }: ObjectCall,
  reason: string,
  cause?: unknown,
): RunlakeError {
  return runlakeError(code, { step, where: location, reason }, { cause });
}

/**
 * Returns whether a call to a destination that has worked before may succeed later without a change of its settings. An
 * unknown host name, or a web page instead of an S3 store, comes from a store that is down, or its proxy. The S3 client asks
 * the metadata service of the machine for default credentials only once, for a second.
 */
export function isWorthRetrying({ class: kind, code, cause }: RunlakeError): boolean {
  const lacksCredentials = cause instanceof Error && cause.name === 'CredentialsProviderError';
  return kind !== 'caller' || code === 'DESTINATION_ENDPOINT_INVALID' || lacksCredentials;
}

/** Returns true if the error of a call means that the object does not exist. */
export function isMissingObjectError(error: unknown): boolean {
  return isRunlakeError(error) && error.code === 'DESTINATION_OBJECT_MISSING';
}

/** Joins the parts of an object key with single slashes; skips empty parts and trims slashes at the ends of parts. */
export function joinKey(...parts: readonly (string | undefined)[]): string {
  return parts.flatMap((part) => part?.replace(/^\/+|\/+$/g, '') || []).join('/');
}

/** Reads the first `maxBytes` of a stream, then destroys the stream and its connection. */
export async function readAtMost(stream: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > maxBytes) break;
  }
  return Buffer.concat(chunks).subarray(0, maxBytes);
}

/** Opens the file of an upload. Runlake created it, so a missing file is an internal error. */
export function openSource(path: string): Promise<FileHandle> {
  return open(path, 'r').catch((cause) => {
    throw runlakeError('INTERNAL', {}, { cause });
  });
}

/** Size of a chunk. It is small enough that hashing one chunk does not block the event loop. */
export const chunkBytes = 1024 ** 2;

/** Fills `buffer` with the contents of the file from `position` on, and updates all `hashes`. */
export async function fillFromFile(
  file: FileHandle,
  buffer: Buffer,
  position: number,
  hashes: readonly Hash[],
): Promise<void> {
  for (let filledBytes = 0; filledBytes < buffer.length; ) {
    const length = Math.min(chunkBytes, buffer.length - filledBytes);
    const { bytesRead } = await file.read(buffer, filledBytes, length, position + filledBytes);
    if (bytesRead === 0) throw runlakeError('INTERNAL', {}, { cause: 'a file became shorter while it was uploaded' });
    const chunk = buffer.subarray(filledBytes, filledBytes + bytesRead);
    for (const hash of hashes) hash.update(chunk);
    filledBytes += bytesRead;
  }
}

/**
 * The port of export destinations. Adapters: a bucket with the S3 API (`s3/`) and a local folder (`local/`). The
 * contract suite `test/contract/objects` runs against both.
 *
 * Keys are relative to the store's prefix, with parts joined by `/`. Writes are atomic: a reader of a key sees nothing,
 * the previous object, or the complete new object. Every call throws only errors of the catalogue (`DESTINATION_…`), or
 * the reason of the caller's signal, if that was aborted. After a failed write the new object may exist or not.
 */
export interface ObjectStore {
  /** Full path of the object for messages, as `bucket/prefix/key`. */
  pathOf(key: string): string;
  /** Resolves when the store responds, even if it denies access. */
  reach(options?: ObjectCallOptions): Promise<void>;
  /** Writes a small object in one request; replaces an existing one. */
  put(key: string, body: Uint8Array, options?: PutOptions): Promise<void>;
  /** Returns at most the first `maxBytes` of the object. @throws DESTINATION_OBJECT_MISSING if it does not exist. */
  get(key: string, options: GetOptions): Promise<Buffer>;
  /**
   * Returns size and version of the object, or undefined if it does not exist.
   * @throws DESTINATION_ACCESS_DENIED without read permission. Without list permission, stores return this for missing
   *   objects too.
   */
  stat(key: string, options?: ObjectCallOptions): Promise<ObjectStat | undefined>;
  /** Deletes the object, if it exists. */
  delete(key: string, options?: ObjectCallOptions): Promise<void>;
  /**
   * Uploads a local file to `key`; replaces an existing object. Large files are uploaded in parts. An upload that fails
   * or is aborted by its signal is cancelled, if the credentials permit it. If reading is permitted, the size of the
   * stored object is verified.
   */
  upload(key: string, path: string, options?: UploadOptions): Promise<Uploaded>;
  /**
   * Cancels multipart uploads to `key` that a dead process left, if the credentials permit it: those with the given ids
   * and, if the store can list uploads, also those whose id was not recorded.
   */
  abortUploads(key: string, uploadIds: readonly string[], options?: ObjectCallOptions): Promise<void>;
  /** Closes the connections. Running calls fail. */
  close(): Promise<void>;
}

export interface ObjectStat {
  readonly bytes: number;
  /** As the store returns it; it changes with the content. Undefined if the store has none. */
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
  /** Called with the id of a multipart upload before the first part is sent; the upload continues when it resolves. */
  readonly recordUpload?: (uploadId: string) => Promise<void>;
  /** Called before an object is replaced, if the store can tell; rejects if the caller has lost the right to write. */
  readonly mayReplace?: () => Promise<void>;
  /** Called with the number of bytes uploaded so far. */
  readonly onProgress?: (bytes: number) => void;
}

export interface Uploaded {
  readonly bytes: number;
  /** Hash of the whole file, in hexadecimal. */
  readonly sha256: string;
  /** As in {@link ObjectStore.stat}; undefined if the store has none, or without read permission. */
  readonly etag?: string | undefined;
}

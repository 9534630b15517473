/**
 * The port of the place where exported files go. Adapters: a bucket behind the S3 API (`s3/`) and a folder (`local/`). One
 * contract suite, `test/contract/objects`, runs against each.
 *
 * Keys are relative to the store's prefix, parts joined by `/`. Nothing is ever half there: a reader of a key finds nothing, what
 * was there before, or the whole new object. Every call throws only errors of the catalogue (`DESTINATION_…`), or, where the
 * caller's signal was aborted, its reason; after a rejection of a write the object may be there or not.
 */
export interface ObjectStore {
  /** How the owner of the bucket would name the object, as `bucket/prefix/key`. */
  pathOf(key: string): string;
  /** Resolves when the place answers, whatever it says of rights. */
  reach(options?: ObjectCallOptions): Promise<void>;
  /** Writes a small object in one go, over what is there. */
  put(key: string, body: Uint8Array, options?: PutOptions): Promise<void>;
  /** The object, at most `maxBytes` of it. @throws DESTINATION_OBJECT_MISSING where there is none. */
  get(key: string, options: GetOptions): Promise<Buffer>;
  /**
   * Size and version of the object, without its content; undefined if there is none.
   * @throws DESTINATION_ACCESS_DENIED if it may not be read, which a store that does not let itself be listed answers for a missing
   * object too.
   */
  stat(key: string, options?: ObjectCallOptions): Promise<ObjectStat | undefined>;
  /** Deletes the object; where there is none, nothing. */
  delete(key: string, options?: ObjectCallOptions): Promise<void>;
  /**
   * Writes a local file to `key`, over what is there. Large files go up in parts, and an upload that fails, or whose signal is
   * aborted, is taken back where the right to do so exists. Where reading is allowed, the size of what arrived is compared.
   */
  upload(key: string, path: string, options?: UploadOptions): Promise<Uploaded>;
  /**
   * Takes back uploads in parts to `key` that a process which died left behind, as far as rights allow: those of these ids, and
   * where the store can list them also those whose id nobody could note.
   */
  abortUploads(key: string, uploadIds: readonly string[], options?: ObjectCallOptions): Promise<void>;
  /** Ends its connections. Calls under way fail. */
  close(): Promise<void>;
}

export interface ObjectStat {
  readonly bytes: number;
  /** As the store sends it; differs after each write of other content. Undefined if the store has none. */
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
  /** Called with the id of an upload in parts before its first part is sent; the upload goes on when it has resolved. */
  readonly noteUpload?: (uploadId: string) => Promise<void>;
  /** Called before anything at the key is replaced; rejects if the caller may no longer write. The store asks where it can. */
  readonly mayReplace?: () => Promise<void>;
  /** Called with the bytes that have arrived so far. */
  readonly onProgress?: (bytes: number) => void;
}

export interface Uploaded {
  readonly bytes: number;
  /** Of the whole file, in hexadecimal. */
  readonly sha256: string;
  /** As {@link ObjectStore.stat} answers it; undefined if the store has none, or may not be asked. */
  readonly etag?: string | undefined;
}

import type { BlobPart, CheckpointPart, WritePart } from './leased-statements.ts';
import type { StoredTuple } from './stored-tuples.ts';

/** Larger states are not cached but read from the database. */
const maxBytes = 256 * 1024;

interface Head {
  readonly part: CheckpointPart;
  readonly blobs: ReadonlyMap<string, BlobPart>;
  readonly writes: Map<string, WritePart>;
  bytes: number;
}

/**
 * Caches the newest checkpoints that a saver put itself, in the form of table rows, so that reading the state after a
 * run needs no query. This is valid because no other process writes to the thread while the saver holds its lease.
 *
 * It caches a namespace only if this saver wrote its complete history, as an unbranched chain. For other namespaces it
 * returns undefined.
 */
export class OwnHeads {
  /** By thread and namespace. `undefined`: the history is not fully known, or the state is too large. */
  readonly #heads = new Map<string, Head | undefined>();

  /** Call after the checkpoint was handed to the database. @param versions The versions of all its channels. */
  put(thread: string, part: CheckpointPart, versions: Readonly<Record<string, unknown>>): void {
    const key = headKey(thread, part.namespace);
    const before = this.#heads.get(key);
    const follows = this.#heads.has(key) ? before?.part.checkpointId === part.parentId : part.parentId === undefined;
    this.#heads.set(key, follows ? nextHead(part, versions, before) : undefined);
  }

  write(thread: string, parts: readonly WritePart[]): void {
    for (const part of parts) {
      const key = headKey(thread, part.namespace);
      const head = this.#heads.get(key);
      if (head?.part.checkpointId !== part.checkpointId) {
        this.#heads.set(key, undefined);
        continue;
      }
      const name = JSON.stringify([part.taskId, part.index]);
      // Same rule as in `writeSql`: the first ordinary write wins.
      if (part.index >= 0 && head.writes.has(name)) continue;
      head.writes.set(name, part);
      head.bytes += part.bytes?.byteLength ?? 0;
      if (head.bytes > maxBytes) this.#heads.set(key, undefined);
    }
  }

  /** Returns the newest checkpoint of a namespace as a query would; undefined if the cache does not have it. */
  row(thread: string, namespace: string): StoredTuple | undefined {
    const head = this.#heads.get(headKey(thread, namespace));
    if (head === undefined) return undefined;
    const { part } = head;
    const blobs = [...head.blobs.values()].sort((one, other) => compare(one.channel, other.channel));
    const writes = [...head.writes.values()].sort(
      (one, other) => compare(one.taskId, other.taskId) || one.index - other.index,
    );
    return {
      thread_id: thread,
      checkpoint_ns: namespace,
      checkpoint_id: part.checkpointId,
      parent_checkpoint_id: part.parentId ?? null,
      checkpoint: JSON.parse(part.checkpoint) as StoredTuple['checkpoint'],
      metadata: part.metadata,
      blob_parts: blobs.map(({ channel, type, bytes }) => [channel, type, bytes?.byteLength ?? null]),
      blob_bytes: concatBytes(blobs),
      write_parts: writes.map(({ taskId, channel, type, bytes }) => [taskId, channel, type, bytes?.byteLength ?? null]),
      write_bytes: concatBytes(writes),
    };
  }

  forget(): void {
    this.#heads.clear();
  }
}

/** Returns undefined if the value of a channel was not put by this saver, or if the state is too large. */
function nextHead(
  part: CheckpointPart,
  versions: Readonly<Record<string, unknown>>,
  before: Head | undefined,
): Head | undefined {
  const put = new Map(part.blobs.map((blob) => [blob.channel, blob]));
  const blobs = new Map<string, BlobPart>();
  let bytes = 0;
  for (const [channel, version] of Object.entries(versions)) {
    const blob = [put.get(channel), before?.blobs.get(channel)].find((each) => each?.version === String(version));
    if (blob === undefined) return undefined;
    blobs.set(channel, blob);
    bytes += blob.bytes?.byteLength ?? 0;
  }
  return bytes > maxBytes ? undefined : { part, blobs, writes: new Map(), bytes };
}

function headKey(thread: string, namespace: string): string {
  return JSON.stringify([thread, namespace]);
}

function compare(one: string, other: string): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}

function concatBytes(parts: readonly { readonly bytes: Uint8Array | undefined }[]): Buffer {
  return Buffer.concat(parts.flatMap(({ bytes }) => bytes ?? []));
}

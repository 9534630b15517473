import type { BlobPart, CheckpointPart, WritePart } from './leased-statements.ts';
import type { StoredTuple } from './stored-tuples.ts';

/** A state that is larger is read from where it is written. */
const mostBytes = 256 * 1024;

interface Head {
  readonly part: CheckpointPart;
  readonly blobs: ReadonlyMap<string, BlobPart>;
  readonly writes: Map<string, WritePart>;
  bytes: number;
}

/**
 * The newest checkpoints that a saver itself put, as rows of the tables: who asks a graph for its state when it has just run need not
 * have them read back. Nobody else writes while it holds its lease, so that what it put is all there is.
 *
 * Only where all of it was put by the saver, from the first checkpoint of a thread on, each following on the one before; for all else
 * it knows nothing.
 */
export class OwnHeads {
  /** By thread and namespace; `undefined` where something was put that it cannot follow. */
  readonly #heads = new Map<string, Head | undefined>();

  /** `versions`: of all channels of the checkpoint. To be called when it is on its way. */
  put(thread: string, part: CheckpointPart, versions: Readonly<Record<string, unknown>>): void {
    const place = placeOf(thread, part.namespace);
    const before = this.#heads.get(place);
    const follows = this.#heads.has(place) ? before?.part.checkpointId === part.parentId : part.parentId === undefined;
    this.#heads.set(place, follows ? headOf(part, versions, before) : undefined);
  }

  write(thread: string, parts: readonly WritePart[]): void {
    for (const part of parts) {
      const place = placeOf(thread, part.namespace);
      const head = this.#heads.get(place);
      if (head?.part.checkpointId !== part.checkpointId) {
        this.#heads.set(place, undefined);
        continue;
      }
      const name = JSON.stringify([part.taskId, part.index]);
      // As the statement that writes it has it.
      if (part.index >= 0 && head.writes.has(name)) continue;
      head.writes.set(name, part);
      head.bytes += part.bytes?.byteLength ?? 0;
      if (head.bytes > mostBytes) this.#heads.set(place, undefined);
    }
  }

  /** The newest checkpoint there, as a query would find it. `undefined`: not known. */
  row(thread: string, namespace: string): StoredTuple | undefined {
    const head = this.#heads.get(placeOf(thread, namespace));
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
      blob_bytes: joined(blobs),
      write_parts: writes.map(({ taskId, channel, type, bytes }) => [taskId, channel, type, bytes?.byteLength ?? null]),
      write_bytes: joined(writes),
    };
  }

  forget(): void {
    this.#heads.clear();
  }
}

/** `undefined` where a value is not among what was put. */
function headOf(
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
  return bytes > mostBytes ? undefined : { part, blobs, writes: new Map(), bytes };
}

function placeOf(thread: string, namespace: string): string {
  return JSON.stringify([thread, namespace]);
}

function compare(one: string, other: string): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}

function joined(parts: readonly { readonly bytes: Uint8Array | undefined }[]): Buffer {
  return Buffer.concat(parts.flatMap(({ bytes }) => bytes ?? []));
}

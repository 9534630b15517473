/**
 * Statements that write under a lease. Each of them takes deployment, thread and token as $1 to $3, writes only if
 * the lease is valid, and returns one row whose column `holds` is true if the lease is valid.
 */
const leaseCte = `lease AS MATERIALIZED (SELECT agents.lease_is_valid($1, $2, $3) AS holds)`;
const threadKeySql = `$1::uuid::text || ':' || $2::uuid::text`;

/** The value of one channel in one version, which checkpoints refer to. */
export interface BlobPart {
  readonly channel: string;
  readonly version: string;
  readonly type: string;
  /** Undefined if the channel is empty. */
  readonly bytes: Uint8Array | undefined;
}

export interface CheckpointPart {
  readonly namespace: string;
  readonly checkpointId: string;
  readonly parentId: string | undefined;
  /** JSON text that `jsonb` accepts. */
  readonly checkpoint: string;
  /** JSON text that `jsonb` accepts. */
  readonly metadata: string;
  readonly blobs: readonly BlobPart[];
}

/** One pending write of a task. */
export interface WritePart {
  readonly namespace: string;
  readonly checkpointId: string;
  readonly taskId: string;
  /** Negative if the write replaces an earlier write. */
  readonly index: number;
  readonly channel: string;
  readonly type: string;
  readonly bytes: Uint8Array | undefined;
}

/** SQL expression for the bytes of one part. $23 contains the bytes of all parts. */
const partBytesSql = `substr($23::bytea, part.start, part.length)`;

export const writeSql = `
WITH ${leaseCte},
blobs AS (
  INSERT INTO agents.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
  SELECT ${threadKeySql}, part.namespace, part.channel, part.version, part.type, ${partBytesSql}
  FROM lease, unnest($9::text[], $10::text[], $11::text[], $12::text[], $13::int[], $14::int[])
    AS part (namespace, channel, version, type, start, length)
  WHERE lease.holds
  ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
),
checkpoints AS (
  INSERT INTO agents.checkpoints AS old
    (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
  SELECT ${threadKeySql}, part.namespace, part.id, part.parent, part.checkpoint::jsonb, part.metadata::jsonb
  FROM lease, unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
    AS part (namespace, id, parent, checkpoint, metadata)
  WHERE lease.holds
  ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
  DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata,
    replaced = CASE
      WHEN old.metadata ->> 'run_id' IS NOT DISTINCT FROM EXCLUDED.metadata ->> 'run_id' THEN old.replaced
      ELSE jsonb_build_object('checkpoint', old.checkpoint, 'metadata', old.metadata)
    END
),
written AS (
  INSERT INTO agents.checkpoint_writes AS old
    (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, run_id)
  SELECT ${threadKeySql}, part.namespace, part.id, part.task, part.idx, part.channel, part.type, ${partBytesSql}, $24
  FROM lease, unnest($15::text[], $16::text[], $17::text[], $18::int[], $19::text[], $20::text[], $21::int[], $22::int[])
    AS part (namespace, id, task, idx, channel, type, start, length)
  WHERE lease.holds
  ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
  DO UPDATE SET channel = EXCLUDED.channel, type = EXCLUDED.type, blob = EXCLUDED.blob, run_id = EXCLUDED.run_id,
    (replaced_run_id, replaced_type, replaced_blob) = (
      SELECT kept.run_id, kept.type, kept.blob FROM (VALUES
        (true, old.run_id, old.type, old.blob),
        (false, old.replaced_run_id, old.replaced_type, old.replaced_blob)
      ) AS kept (by_another, run_id, type, blob)
      WHERE by_another = (old.run_id IS DISTINCT FROM EXCLUDED.run_id)
    )
  WHERE old.idx < 0
)
SELECT holds FROM lease`;

/** Returns the parameters $4 to $24 of {@link writeSql}. */
export function buildWriteParameters(
  checkpoints: readonly CheckpointPart[],
  writes: readonly WritePart[],
  runId: string | undefined,
): unknown[] {
  const blobs = checkpoints.flatMap(({ namespace, blobs }) => blobs.map((blob) => ({ namespace, ...blob })));
  const { bytes, starts, sizes } = joinBytes([...blobs, ...writes].map((part) => part.bytes));
  return [
    checkpoints.map((part) => part.namespace),
    checkpoints.map((part) => part.checkpointId),
    checkpoints.map((part) => part.parentId ?? null),
    checkpoints.map((part) => part.checkpoint),
    checkpoints.map((part) => part.metadata),
    blobs.map((part) => part.namespace),
    blobs.map((part) => part.channel),
    blobs.map((part) => part.version),
    blobs.map((part) => part.type),
    starts.slice(0, blobs.length),
    sizes.slice(0, blobs.length),
    writes.map((part) => part.namespace),
    writes.map((part) => part.checkpointId),
    writes.map((part) => part.taskId),
    writes.map((part) => part.index),
    writes.map((part) => part.channel),
    writes.map((part) => part.type),
    starts.slice(blobs.length),
    sizes.slice(blobs.length),
    bytes,
    runId ?? null,
  ];
}

/**
 * Selects whether a task has consumed a resume value of the run. A consumed value is stored under the UUID of its task;
 * any other value is stored under the zero UUID or the id of the interrupt.
 */
export const consumedResumeSql = `
SELECT EXISTS (
  SELECT FROM agents.checkpoint_writes
  WHERE thread_id = $1 AND run_id = $2 AND channel = '__resume__'
    AND length(task_id) = 36 AND task_id <> '00000000-0000-0000-0000-000000000000'
) AS taken`;

export const deleteThreadSql = `
WITH ${leaseCte},
key AS (SELECT ${threadKeySql} AS thread_id FROM lease WHERE holds),
blobs AS (DELETE FROM agents.checkpoint_blobs USING key WHERE checkpoint_blobs.thread_id = key.thread_id),
writes AS (DELETE FROM agents.checkpoint_writes USING key WHERE checkpoint_writes.thread_id = key.thread_id),
checkpoints AS (DELETE FROM agents.checkpoints USING key WHERE checkpoints.thread_id = key.thread_id)
SELECT holds FROM lease`;

export interface JoinedBytes {
  readonly bytes: Buffer;
  /** Start positions of the values, counted from 1 as in `substr`. */
  readonly starts: readonly number[];
  /** Lengths of the values; null for an undefined value. */
  readonly sizes: readonly (number | null)[];
}

/**
 * Concatenates values into one binary parameter. An array parameter would be sent as hexadecimal text, which is twice
 * as long. The statement splits the parameter with `substr`, which returns null for a null length.
 */
function joinBytes(values: readonly (Uint8Array | undefined)[]): JoinedBytes {
  const starts: number[] = [];
  let end = 0;
  for (const value of values) {
    starts.push(end + 1);
    end += value?.byteLength ?? 0;
  }
  return {
    bytes: Buffer.concat(values.filter((value) => value !== undefined)),
    starts,
    sizes: values.map((value) => value?.byteLength ?? null),
  };
}

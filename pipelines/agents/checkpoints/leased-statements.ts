/** Each statement takes organisation, thread and token first, writes where they hold, and answers one row with `holds`. */
const lease = `lease AS MATERIALIZED (SELECT agents.lease_holds($1, $2, $3) AS holds)`;
const threadId = `$1::uuid::text || ':' || $2::uuid::text`;

export const putSql = `
WITH ${lease},
blobs AS (
  INSERT INTO agents.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
  SELECT ${threadId}, $4, part.channel, part.version, part.type, substr($14::bytea, part.start, part.length)
  FROM lease, unnest($9::text[], $10::text[], $11::text[], $12::int[], $13::int[])
    AS part (channel, version, type, start, length)
  WHERE lease.holds
  ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
),
checkpoint AS (
  INSERT INTO agents.checkpoints AS old
    (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
  SELECT ${threadId}, $4, $5, $6, $7::jsonb, $8::jsonb FROM lease WHERE lease.holds
  ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
  DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata,
    replaced = CASE
      WHEN old.metadata ->> 'run_id' IS NOT DISTINCT FROM EXCLUDED.metadata ->> 'run_id' THEN old.replaced
      ELSE jsonb_build_object('checkpoint', old.checkpoint, 'metadata', old.metadata)
    END
)
SELECT holds FROM lease`;

export const putWritesSql = `
WITH ${lease},
written AS (
  INSERT INTO agents.checkpoint_writes AS old
    (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, run_id)
  SELECT ${threadId}, $4, $5, $6, part.idx, part.channel, part.type, substr($12::bytea, part.start, part.length), $13
  FROM lease, unnest($7::int[], $8::text[], $9::text[], $10::int[], $11::int[]) AS part (idx, channel, type, start, length)
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

export const deleteThreadSql = `
WITH ${lease},
key AS (SELECT ${threadId} AS thread_id FROM lease WHERE holds),
blobs AS (DELETE FROM agents.checkpoint_blobs USING key WHERE checkpoint_blobs.thread_id = key.thread_id),
writes AS (DELETE FROM agents.checkpoint_writes USING key WHERE checkpoint_writes.thread_id = key.thread_id),
checkpoints AS (DELETE FROM agents.checkpoints USING key WHERE checkpoints.thread_id = key.thread_id)
SELECT holds FROM lease`;

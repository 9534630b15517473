import pg from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { nilUuid, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { until } from '../../../infra/until.ts';
import { json, runEvent } from '../../runs/run-events.ts';
import { type ManualSink, openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { toLogMessage } from './sink-under-test.ts';

let sink: ManualSink;
let other: pg.Client;
beforeEach(async () => {
  sink = await openDrivenSink();
  other = new pg.Client(sink.stores.databaseUrl);
  await other.connect();
});
afterEach(async () => {
  await other.end();
  await sink.close();
});

const patchOf = (of: RunEvent): RunEvent => ({
  ...of,
  kind: 'patch',
  projectId: nilUuid,
  values: { outputs: json('patched') },
});

test('an event that is deferred while another partition stores the first event of its trace is released at once', async () => {
  const run = runEvent();
  const deliver = (offset: number, partition: number, event: RunEvent) =>
    sink.deliver(runEvents, toRecordsAtOffset(offset, [toLogMessage(event)], partition));

  // A transaction that defers this event waits until this transaction has ended.
  await other.query('BEGIN');
  await other.query(
    `INSERT INTO deferred_events (topic, partition, log_offset, version, tenant_id, trace_id, key, value, headers)
     VALUES ($1, 1, 0, $4, $2, $3, '', '', '{}')`,
    [runEvents.name, run.tenantId, run.traceId, String(toRecordsAtOffset(0, [toLogMessage(run)], 1)[0]?.version)],
  );
  const deferring = deliver(0, 1, patchOf(run));
  // Not pg_stat_activity, which does not change within a transaction.
  const waiting = 'SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))';
  await until('the event to be about to be deferred', async () => ((await other.query(waiting)).rowCount ?? 0) > 0);
  await deliver(0, 0, run);
  await other.query('ROLLBACK');
  await deferring;

  const outputs = await sink.stores.clickhouse.query<{ outputs: string | null }>({
    name: 'test',
    sql: 'SELECT outputs FROM runs FINAL',
  });
  expect(outputs).toEqual([{ outputs: '"patched"' }]);
  expect(await sink.stores.database.query('SELECT FROM deferred_events')).toHaveLength(0);
});

import { expect, it } from 'vitest';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { keepTraces } from '../../../pipelines/retention/keep-traces.ts';
import { runEvents } from '../../../schemas/topics.ts';
import { forSuite } from '../../for-suite.ts';
import { openDrivenSink, overrideLog, toRecordsAtOffset } from '../ingest/sink/driven-sink.ts';
import { toLogMessage } from '../ingest/sink/sink-under-test.ts';
import { json, projectId, runEvent, tenantId } from '../runs/run-events.ts';
import { retentionConfig } from './retention-under-test.ts';
import { openTwoTiers, storedLog } from './two-tiers.ts';

const stores = forSuite(() => openTwoTiers());
const MiB = 1024 ** 2;

it('a large trace is kept with little memory', async () => {
  const micros = Date.now() * 1_000;
  const times = { traceTimeMicros: micros, startTimeMicros: micros, projectId };
  const root = runEvent(times);
  const extra = json({ metadata: { text: 'x'.repeat(4 * MiB) } });
  const children = Array.from({ length: 50 }, () =>
    runEvent({ ...times, traceId: root.traceId, values: { name: 'child', extra } }),
  );
  const sink = await openDrivenSink({ stores, config: retentionConfig });
  await sink.deliver(runEvents, toRecordsAtOffset(1, [root, ...children].map(toLogMessage)));
  const { database, clickhouse } = stores;
  const command: ClickHouse['command'] = ({ settings, ...given }) =>
    clickhouse.command({ ...given, settings: { ...settings, max_memory_usage: String(900 * MiB) } });
  const change = {
    id: 1,
    kind: 'keep',
    tenantId,
    runId: null,
    projectId,
    traceIds: [root.traceId],
    metadata: null,
  } as const;
  const deps = {
    ...{ database, clickhouse: { ...clickhouse, command }, config: retentionConfig },
    log: overrideLog(sink.log, storedLog),
  };
  await keepTraces(deps, [{ ...change, isSecond: false, requestedAtMicros: micros }]);
  await sink.close();
  const rows = await clickhouse.query({
    name: 'test',
    sql: `SELECT count() AS runs, sum(length(extra)) AS bytes FROM runs FINAL WHERE trace_id = '${root.traceId}' AND trace_tier = 2`,
  });
  expect(rows).toEqual([{ runs: 51, bytes: 50 * extra.length }]);
}, 120_000);

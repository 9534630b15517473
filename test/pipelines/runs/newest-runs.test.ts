import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import { forSuite } from '../../for-suite.ts';
import { openReading } from './reading.ts';
import { insertEvents, noonMicros, runEvent, tenantId } from './run-events.ts';

const reading = forSuite(() => openReading());

const dayMicros = 86_400_000_000;
const store = (events: readonly RunEvent[]) => insertEvents(reading.stores.clickhouse, events);

describe('the newest runs of a project', () => {
  const read = (projectId: string, limitRows: number) =>
    reading.all({ projectIds: [projectId], limitRows, select: ['name'] });

  it('follow many deleted runs', async () => {
    const projectId = await reading.newProject();
    const runs = [...Array(150).keys()].map((n) => runEvent({ projectId, startTimeMicros: noonMicros - n }));
    await store(runs);
    await store(runs.slice(2, 140).map((run) => ({ ...run, kind: 'patch', deletedAtMicros: noonMicros })));
    const live = [...runs.slice(0, 2), ...runs.slice(140)].map(({ runId }) => runId);
    for (const limitRows of [1, 4, 100]) expect((await read(projectId, limitRows)).ids).toEqual(live);
  });

  /** Stores rows of a run that are not merged. */
  const storeRows = (projectId: string, id: string, startMicros: number, expiresAt: string, rows = 1) =>
    reading.stores.clickhouse.command({
      name: 'test',
      settings: { optimize_on_insert: 0 },
      sql: `INSERT INTO run_events (version, location_version, is_patch, tenant_id, session_id, start_time, trace_id, id, trace_time,
              first_received_at, user_id, key_id, expires_at)
            SELECT 1, 1, false, '${tenantId}', '${projectId}', fromUnixTimestamp64Micro(toInt64(${startMicros})) AS start, '${id}', '${id}',
              start, start, '${id}', '${id}', ${expiresAt} FROM numbers(${rows})`,
    });

  it('include each run once, whose rows are more than one query reads', async () => {
    const projectId = await reading.newProject();
    const stored: [number, number][] = [
      [noonMicros, 1],
      [noonMicros - 1, 100],
      [noonMicros - 2, 1],
      [noonMicros - 2 * dayMicros, 100],
      [noonMicros - 2 * dayMicros - 1, 1],
    ];
    const ids = stored.map(() => randomUUID());
    for (const [n, [startMicros, rows]] of stored.entries())
      await storeRows(projectId, ids[n]!, startMicros, 'now() + 3600', rows);
    for (const limitRows of [1, 2, 3, 4]) expect((await read(projectId, limitRows)).ids).toEqual(ids);
  });

  it('omit expired runs, unless an event keeps them', async () => {
    const projectId = await reading.newProject();
    const [expired, kept] = [randomUUID(), randomUUID()];
    await storeRows(projectId, expired, noonMicros, 'now() - 1');
    await storeRows(projectId, kept, noonMicros, 'now() - 1');
    await storeRows(projectId, kept, noonMicros, 'now() + 3600');
    expect((await read(projectId, 10)).ids).toEqual([kept]);
  });

  it('have tokens only if their merged type is that of a model call', async () => {
    const projectId = await reading.newProject();
    const tokens = { promptTokens: 1, completionTokens: 2, totalTokens: 3 };
    const types = [['llm', 'chain'], [undefined, 'llm'], ['chain'], ['llm', undefined]] as const;
    const runs = types.map(([runType], n) =>
      runEvent({ projectId, startTimeMicros: noonMicros - n, values: { ...tokens, ...(runType && { runType }) } }),
    );
    await store(runs);
    const patches = types.flatMap(([, runType], n) => (runType ? [{ ...runs[n]!, values: { runType } }] : []));
    await store(patches.map((patch) => ({ ...patch, kind: 'patch' })));
    const page = await reading.page({
      projectIds: [projectId],
      select: ['run_type', 'first_token_time', 'total_tokens'],
    });
    expect(page.runs.map((run) => run.total_tokens)).toEqual([0, 3, 0, 3]);
  });
});

import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Query } from '../../../infra/clickhouse/clickhouse.ts';
import type { RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import { parseRunFilters } from '../../../pipelines/runs/filter/run-filter.ts';
import { forSuite } from '../../for-suite.ts';
import { openReading, type TestQuery } from './reading.ts';
import { insertEvents, noonMicros, otherProjectId, projectId, runEvent } from './run-events.ts';

/** Pages of runs whose trace has another run that matches, such as `tree_filter`. */

const hourMicros = 3_600_000_000;
const reading = forSuite(() => openReading());
/** Runs of the traces with a run `needle`, newest first; their roots have the names `a` and `b`. */
let wanted: string[];
const names: string[] = [];

/** A trace of runs at these times; `named` are the names of the root and of the last run. */
function createTrace(times: readonly number[], named: readonly [string, string], more: Partial<RunEvent> = {}) {
  const traceId = randomUUID();
  return times.map((startTimeMicros, index) =>
    runEvent({
      ...{ traceId, startTimeMicros, traceTimeMicros: times[0] as number, runId: index === 0 ? traceId : randomUUID() },
      ...more,
      values: {
        name: index === 0 ? named[0] : index === times.length - 1 ? named[1] : 'step',
        ...(index > 0 && { parentRunId: traceId }),
      },
    }),
  );
}

beforeAll(async () => {
  const long = [0, 1, 2.5, 30].map((hours) => noonMicros + hours * hourMicros);
  const a = createTrace(long, ['a', 'needle']);
  const b = createTrace([noonMicros + 5, noonMicros + 6], ['b', 'needle'], { projectId: otherProjectId });
  const others = [...Array(300).keys()].flatMap((n) => {
    const begin = noonMicros + n * 360_000_000;
    return createTrace([begin, begin + 1], ['other', 'frequent']);
  });
  await insertEvents(reading.stores.clickhouse, [...a, ...b, ...others]);
  // The name of this run has changed, so its trace does not match any more.
  const renamed = createTrace([noonMicros + 7, noonMicros + 8], ['c', 'needle']);
  await insertEvents(reading.stores.clickhouse, renamed);
  const last = renamed[1] as RunEvent;
  await insertEvents(reading.stores.clickhouse, [{ ...last, kind: 'patch', values: { name: 'changed' } }]);
  wanted = [...a, ...b].sort((x, y) => y.startTimeMicros - x.startTimeMicros).map(({ runId }) => runId);
}, 120_000);

function read(filters: Parameters<typeof parseRunFilters>[0], query: TestQuery = {}) {
  names.length = 0;
  const { clickhouse } = reading.deps;
  const counted = <Row>(request: Query) => {
    names.push(request.name);
    return clickhouse.query<Row>(request);
  };
  return reading.all(
    { ...query, filter: { ...query.filter, conditions: parseRunFilters(filters) } },
    { clickhouse: { ...clickhouse, query: counted } },
  );
}

const tree_filter = 'eq(name, "needle")';

describe('the runs of a few traces', () => {
  it('are found in one query each, without reading slices of time', async () => {
    expect((await read({ tree_filter })).ids).toEqual(wanted);
    expect(names.filter((name) => /^(find|probe)-(traces|candidates|runs)$/.test(name))).toEqual([
      'find-traces',
      'find-candidates',
      'find-runs',
    ]);
  });

  it.each(['asc', 'desc'] as const)('are complete in pages of two, %s', async (order) => {
    const { ids, sizes } = await read({ tree_filter }, { limitRows: 2, order });
    expect(ids).toEqual(order === 'desc' ? wanted : [...wanted].reverse());
    expect(sizes).toEqual([2, 2, 2]);
  });

  it.each<[string, Parameters<typeof parseRunFilters>[0], number]>([
    ['a condition on the run', { tree_filter, filter: 'eq(name, "step")' }, 2],
    ['an indexed condition on the root', { tree_filter, trace_filter: 'eq(name, "b")' }, 2],
    ['another condition on the root', { tree_filter, trace_filter: 'neq(name, "b")' }, 4],
    ['another condition on the trace', { tree_filter: 'and(eq(name, "needle"), gt(total_tokens, 1))' }, 0],
    ['the root alone', { trace_filter: 'eq(name, "needle")' }, 0],
    ['a name that no run has any more', { tree_filter: 'eq(name, "nothing")' }, 0],
  ])('are restricted by %s', async (_name, filters, count) => {
    expect((await read(filters)).ids).toHaveLength(count);
  });

  it('are restricted by project, time and parent', async () => {
    expect((await read({ tree_filter }, { projectIds: [otherProjectId] })).ids).toHaveLength(2);
    const startedFromMicros = noonMicros + 2 * hourMicros;
    expect((await read({ tree_filter }, { filter: { startedFromMicros } })).ids).toEqual(wanted.slice(0, 2));
    expect((await read({ tree_filter }, { projectIds: [projectId], filter: { isRoot: true } })).ids).toHaveLength(1);
  });
});

it('the runs of many traces are found in slices of time', async () => {
  const { ids } = await read({ tree_filter: 'eq(name, "frequent")' });
  expect(new Set(ids).size).toBe(600);
  expect(names).toContain('probe-runs');
});

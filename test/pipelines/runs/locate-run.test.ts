import { beforeAll, expect, it } from 'vitest';
import { locateRun, locateRuns, locateTrace } from '../../../pipelines/runs/locate-run.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { deriveUuid, insertEvents, noonMicros, projectId, runEvent, tenantId } from './run-events.ts';

const stores = forSuite(() => freshStores());
const root = runEvent({ runId: deriveUuid('root') });
const child = runEvent({
  runId: deriveUuid('child'),
  traceId: root.runId,
  startTimeMicros: noonMicros + 7,
  traceTimeMicros: noonMicros,
});
beforeAll(async () => {
  await insertEvents(stores.clickhouse, [root, child]);
  await insertEvents(stores.clickhouse, [{ ...child, kind: 'patch' }]);
});

const located = {
  runId: child.runId,
  traceId: root.runId,
  projectId,
  startTimeMicros: noonMicros + 7,
  traceTimeMicros: noonMicros,
};

it('locates a run by its id, once', async () => {
  expect(await locateRun(stores.clickhouse, tenantId, child.runId)).toEqual(located);
  expect(await locateRuns(stores.clickhouse, tenantId, [child.runId, child.runId])).toEqual([located]);
});

it('locates many runs, and leaves out missing ones', async () => {
  const unknown = [...Array(5_000).keys()].map((n) => deriveUuid('unknown', n));
  const found = await locateRuns(stores.clickhouse, tenantId, [root.runId, ...unknown, child.runId]);
  expect(found.map(({ runId }) => runId).sort()).toEqual([root.runId, child.runId].sort());
  expect(await locateRuns(stores.clickhouse, tenantId, [])).toEqual([]);
});

it('does not search other workspaces', async () => {
  expect(await locateRun(stores.clickhouse, deriveUuid('other'), child.runId)).toBeUndefined();
  expect(await locateTrace(stores.clickhouse, deriveUuid('other'), root.runId)).toEqual([]);
});

it('locates the project of a trace', async () => {
  expect(await locateTrace(stores.clickhouse, tenantId, root.runId)).toEqual([projectId]);
});

import { expect, test } from 'vitest';
import { buildTraceKey } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { TraceLocationCache } from '../../../../pipelines/ingest/sink/assign-trace-locations.ts';
import { neverSeconds } from '../../../../pipelines/retention/lifetimes.ts';
import { locateTrace } from '../../../../pipelines/runs/locate-run.ts';
import { runOnStoredTable } from '../../../engines/on-stored-table.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, noonMicros, otherProjectId, projectId, runEvent, tenantId } from '../../runs/run-events.ts';

const stores = forSuite(() => freshStores());

// Two sinks that are assigned the same partition at the same time may each assign a trace location.
test.each([
  ['first', 0, 1],
  ['last', 1, 0],
])(
  'a trace with two assigned locations keeps that of the event accepted first, inserted %s',
  async (_when, one, two) => {
    const first = runEvent({ receivedAtMicros: noonMicros + 1 });
    const second = runEvent({
      traceId: first.traceId,
      receivedAtMicros: noonMicros + 2,
      projectId: otherProjectId,
      traceTimeMicros: noonMicros - 7,
    });
    const events = [first, second] as const;
    let inserted = 0;
    const expectLocation = async () => {
      const key = buildTraceKey(tenantId, first.traceId);
      const contested = new Set<string>();
      const location = (await new TraceLocationCache(1_000).locate([key], stores.clickhouse, contested)).get(key);
      const version = BigInt(first.receivedAtMicros);
      const lifetime = { tier: 'longlived', expiresAtSeconds: neverSeconds };
      expect(location).toEqual({ projectId, traceTimeMicros: first.traceTimeMicros, version, lifetime, wasRead: true });
      expect([...contested]).toHaveLength(inserted > 1 ? 1 : 0);
      expect(await locateTrace(stores.clickhouse, tenantId, first.traceId)).toEqual([projectId]);
    };
    await insertEvents(stores.clickhouse, [events[one] as typeof first]);
    await insertEvents(stores.clickhouse, [events[two] as typeof first]);
    inserted = 2;
    await expectLocation();
    await runOnStoredTable(stores.clickhouse, 'trace_locations', (stored) => `OPTIMIZE TABLE ${stored} FINAL`);
    await expectLocation();
  },
);

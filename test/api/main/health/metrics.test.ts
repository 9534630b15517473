import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { loadConfig } from '../../../../infra/config/load.ts';
import { openDatabase } from '../../../../infra/postgres/pool.ts';
import { registry } from '../../../../infra/telemetry/metrics.ts';
import { oldestDirtyHourAge, readOldestDirtyHourAge } from '../../../../pipelines/usage/rollup.ts';
import { forSuite } from '../../../for-suite.ts';
import { until } from '../../../infra/until.ts';
import { logger } from '../../../silent-logger.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let hide: () => void;

beforeAll(async () => {
  hide = oldestDirtyHourAge.setReader(() => readOldestDirtyHourAge(api.database), 0);
});
afterAll(async () => {
  hide();
});

/** Returns the value of the sample whose line starts with `begin`. */
async function sample(begin: string): Promise<number | undefined> {
  const answer = await api.server.inject('/metrics');
  expect(answer.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
  expect(answer.statusCode).toBe(200);
  const line = answer.body.split('\n').find((text) => text.startsWith(`${begin} `));
  return line === undefined ? undefined : Number(line.slice(begin.length + 1));
}

function post(url: string, payload: object) {
  return api.server.inject({ method: 'POST', url, headers: { 'x-api-key': acme.adminKey }, payload });
}

it('are not served on the API port unless the operator enables them', async () => {
  expect(loadConfig({}).config.serveMetrics).toBe(false);
  Object.assign(api.services.config, { serveMetrics: false });
  onTestFinished(() => {
    Object.assign(api.services.config, { serveMetrics: true });
  });
  const answer = await api.server.inject('/metrics');
  expect([answer.statusCode, answer.json()]).toMatchObject([404, { code: 'ROUTE_NOT_FOUND' }]);
});

it('a run is counted in the metrics of every step', async () => {
  expect(await sample('runlake_usage_oldest_dirty_hour_age_seconds')).toBe(0);
  const run = { id: randomUUID(), name: 'counted', run_type: 'chain', inputs: {} };
  expect((await post('/runs', run)).statusCode).toBe(202);
  expect((await post('/runs', { id: 'no uuid' })).statusCode).toBe(422);
  await api.settled();
  // Gauges of a store are refreshed only after an interval.
  const lag = 'runlake_event_log_lag_events{topic="run-events",partition="0"}';
  await until('the lag is known', async () => (await sample(lag)) !== undefined);

  expect(await sample('runlake_event_log_produced_events_total{topic="run-events"}')).toBe(1);
  expect(await sample('runlake_event_log_produced_bytes_total{topic="run-events"}')).toBeGreaterThan(100);
  expect(await sample('runlake_event_log_publish_seconds_count{topic="run-events",outcome="taken"}')).toBe(1);
  expect(await sample('runlake_event_log_pending_bytes')).toBe(0);
  expect(await sample(lag)).toBe(0);
  expect(await sample('runlake_sink_insert_batch_rows_sum{table="run_events"}')).toBe(1);
  expect(await sample('runlake_sink_insert_batch_bytes_sum{table="run_events"}')).toBeGreaterThan(100);
  expect(await sample('runlake_sink_insert_seconds_count{table="run_events"}')).toBe(1);
  expect(await sample('runlake_run_visible_seconds_count')).toBe(1);
  expect(await sample('runlake_newest_visible_run_age_seconds')).toBeLessThan(60);
  expect(await sample('runlake_dead_letters_waiting{topic="run-events"}')).toBe(0);
  expect(await sample('runlake_deferred_events')).toBe(0);
  expect(await sample('runlake_usage_oldest_dirty_hour_age_seconds')).toBeGreaterThan(0);
  expect(await sample('runlake_http_errors_total{operation="createRun",code="INVALID_RUN"}')).toBe(1);
});

it('an unavailable store omits only its own gauge', async () => {
  const unavailable = openDatabase({
    url: 'postgres://nobody:nothing@127.0.0.1:1/gone',
    logger,
    timeoutMs: 500,
  });
  const end = oldestDirtyHourAge.setReader(() => readOldestDirtyHourAge(unavailable), 0);
  onTestFinished(async () => {
    end();
    await unavailable.close();
  });
  expect(await sample('runlake_usage_oldest_dirty_hour_age_seconds')).toBeUndefined();
  expect(await sample('runlake_event_log_pending_bytes')).toBe(0);
  expect(
    await sample('runlake_scrape_failures_total{metric="runlake_usage_oldest_dirty_hour_age_seconds"}'),
  ).toBeGreaterThan(0);
});

it('names end with their unit or with _total, and each metric has a description', async () => {
  const metrics = (await registry.getMetricsAsJSON()).filter(({ name }) => !/^runlake_(process|nodejs)_/.test(name));
  for (const { name, type, help } of metrics) {
    expect(name).toMatch(/^runlake_[a-z_]+$/);
    expect(name.endsWith('_total'), name).toBe(String(type) === 'counter');
    if (String(type) === 'histogram') expect(name).toMatch(/_(seconds|bytes|rows)$/);
    expect(help).toMatch(/\.$/);
  }
});

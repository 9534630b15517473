import { afterEach, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { maxWaitMs, type ReadSamples, registry, scrapedGauge } from '../../../infra/telemetry/metrics.ts';
import { until } from '../until.ts';

const plain = scrapedGauge('runlake_test_plain', 'Of the test.', []);
const labelled = scrapedGauge('runlake_test_labelled', 'Of the test.', ['topic', 'partition']);
const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

function show(look: ReadSamples<never>, intervalMs?: number): void {
  ends.push(plain.setReader(look, intervalMs));
}

/** Returns the lines of a scrape for one metric, without comments. */
async function scrape(name = 'runlake_test_plain'): Promise<string[]> {
  return (await registry.metrics()).split('\n').filter((line) => line.startsWith(name));
}

async function failures(): Promise<number> {
  const line = (await registry.getSingleMetricAsString('runlake_scrape_failures_total'))
    .split('\n')
    .find((text) => text.includes('metric="runlake_test_plain"'));
  return Number(line?.split(' ').at(-1) ?? 0);
}

it('exports the value of its source, and nothing without a source or a value', async () => {
  expect(await scrape()).toEqual([]);
  let value: number | undefined = 7;
  show(() => value, 0);
  expect(await scrape()).toEqual(['runlake_test_plain 7']);
  value = undefined;
  expect(await scrape()).toEqual([]);
  value = 0;
  expect(await scrape()).toEqual(['runlake_test_plain 0']);
  ends.splice(0)[0]?.();
  expect(await scrape()).toEqual([]);
});

it('does not export labels that the source no longer returns', async () => {
  const sample = (partition: number) => ({ labels: { topic: 't', partition }, value: partition });
  let samples = [sample(0), sample(1)];
  ends.push(labelled.setReader(async () => samples, 0));
  expect(await scrape('runlake_test_labelled')).toHaveLength(2);
  samples = [sample(1)];
  expect(await scrape('runlake_test_labelled')).toEqual(['runlake_test_labelled{topic="t",partition="1"} 1']);
});

it('ignores a replaced source, even if it ends later', async () => {
  const end = plain.setReader(() => 1, 0);
  show(() => 2, 0);
  end();
  expect(await scrape()).toEqual(['runlake_test_plain 2']);
});

it('queries its source once for concurrent and successive scrapes', async () => {
  let queries = 0;
  show(async () => ++queries, 60_000);
  await Promise.all([scrape(), scrape(), scrape()]);
  expect(await scrape()).toEqual(['runlake_test_plain 1']);
  expect(queries).toBe(1);
});

it('omits a gauge whose query fails and counts the failure; others are exported', async () => {
  const before = await failures();
  show(() => Promise.reject(runlakeError('DATABASE_UNAVAILABLE')), 0);
  ends.push(labelled.setReader(() => [{ labels: { topic: 't', partition: 0 }, value: 3 }], 0));
  expect(await scrape()).toEqual([]);
  expect(await scrape('runlake_test_labelled')).toHaveLength(1);
  expect(await failures()).toBeGreaterThan(before);
});

it('a query that hangs delays a scrape at most by the timeout, is not repeated, and its result serves the next scrape', async () => {
  const before = await failures();
  let queries = 0;
  let resolveQuery = (_value: number) => {};
  show(() => {
    queries += 1;
    return new Promise<number>((resolve) => {
      resolveQuery = resolve;
    });
  }, 60_000);
  const startedAtMs = performance.now();
  expect(await Promise.all([scrape(), scrape()])).toEqual([[], []]);
  expect(performance.now() - startedAtMs).toBeLessThan(maxWaitMs * 10);
  expect(queries).toBe(1);
  expect(await failures()).toBe(before + 2);
  resolveQuery(5);
  await until('the late result', async () => (await scrape()).includes('runlake_test_plain 5'));
  expect(queries).toBe(1);
});

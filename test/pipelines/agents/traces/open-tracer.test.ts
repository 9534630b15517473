import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { openTracer } from '../../../../pipelines/agents/traces/open-tracer.ts';
import type { TracedRuns, TraceOrder } from '../../../../pipelines/agents/traces/trace-order.ts';
import { formatDottedOrderSegment } from '../../../../pipelines/ingest/run-event/dotted-order.ts';
import { graph as loop } from '../../../agents/projects/traced/loop.ts';
import { graph as whole } from '../../../agents/projects/traced/whole.ts';

/** What a worker collects, without stores. */

afterEach(() => vi.unstubAllEnvs());

const rootId = randomUUID();
const rootMicros = Date.now() * 1_000;
const order: TraceOrder = {
  root: formatDottedOrderSegment(rootMicros, rootId),
  rootMicros,
  values: true,
  thread: true,
  maxRuns: 1_000,
  maxCharacters: 1_000_000,
  maxRunBytes: 1_000_000,
};

/** Runs of the trace by id, as the last of their events left them, and the last marks. */
async function collect(graph: typeof loop | typeof whole, input: object, changed: Partial<TraceOrder> = {}) {
  const handed: TracedRuns[] = [];
  const tracer = openTracer({ ...order, ...changed }, (runs) => void handed.push(runs));
  const callbacks = tracer === undefined ? [] : [tracer.handler as never];
  await graph.invoke(input as never, { runId: rootId, callbacks, recursionLimit: 1_000 });
  tracer?.close('over');
  const runs = new Map<string, Record<string, unknown>>();
  for (const { runId, location, members, values } of handed.flatMap((batch) => batch.runs)) {
    runs.set(runId, { ...runs.get(runId), ...JSON.parse(`{${location},${members}${values}}`) });
  }
  return { traced: tracer !== undefined, runs: [...runs.values()], marks: handed.at(-1) };
}

const hello = { messages: [{ role: 'human', content: 'hello' }] };

describe('a project that says in its environment', () => {
  it.each(['LANGSMITH_TRACING', 'LANGSMITH_TRACING_V2', 'LANGCHAIN_TRACING_V2'])(
    '%s traces itself, or not at all',
    (name) => {
      vi.stubEnv(name, 'false');
      expect(openTracer(order, () => undefined)).toBeUndefined();
      vi.stubEnv(name, 'true');
      expect(openTracer(order, () => undefined)).toBeUndefined();
      vi.stubEnv(name, '');
      expect(openTracer(order, () => undefined)).toBeDefined();
    },
  );

  it('that inputs or outputs are hidden has neither in its runs', async () => {
    vi.stubEnv('LANGSMITH_HIDE_INPUTS', 'true');
    const { runs } = await collect(whole, hello);
    expect(runs.length).toBeGreaterThan(9);
    for (const run of runs) expect(run).not.toHaveProperty('inputs');
    expect(runs.some((run) => run.outputs !== undefined)).toBe(true);
    vi.stubEnv('LANGSMITH_HIDE_OUTPUTS', 'true');
    for (const run of (await collect(whole, hello)).runs) expect(run).not.toHaveProperty('outputs');
  });
});

describe('limits', () => {
  // Each round is a node and the function that says where it goes on.
  it('of runs: the rest is counted', async () => {
    const { runs, marks } = await collect(loop, { rounds: 30 }, { maxRuns: 10 });
    expect(runs).toHaveLength(10);
    expect(marks).toMatchObject({ droppedRuns: 51, droppedValues: 0 });
  });

  it('of characters: values beyond are left out and counted, the runs are there', async () => {
    const { runs, marks } = await collect(loop, { rounds: 30 }, { maxCharacters: 500 });
    expect(runs).toHaveLength(61);
    const lacking = runs.filter(({ extra }) => 'values_left_out' in (extra as { metadata: object }).metadata);
    expect(lacking.length).toBeGreaterThan(10);
    expect(marks?.droppedValues).toBeGreaterThan(20);
  });
});

it('every run lies below the root, begins no earlier, and ends no earlier than it begins', async () => {
  const { runs } = await collect(whole, hello, { rootMicros: rootMicros + 3_600_000_000 });
  for (const run of runs as { dotted_order: string; trace_id: string; start_time: string; end_time: string }[]) {
    expect(run.dotted_order.startsWith(`${order.root}.`)).toBe(true);
    expect(run.trace_id).toBe(rootId);
    expect(run.end_time >= run.start_time).toBe(true);
    if (run.dotted_order.split('.').length === 2) {
      expect(Date.parse(`${run.start_time}Z`) * 1_000).toBeGreaterThanOrEqual(rootMicros + 3_600_000_000);
    }
  }
});

it('what is open when a run of a graph ends, ends with the reason', () => {
  const handed: TracedRuns[] = [];
  const tracer = openTracer(order, (runs) => void handed.push(runs));
  tracer?.handler.handleChainStart({ id: ['node'] }, { n: 1 }, randomUUID(), rootId);
  tracer?.close('the run was cancelled');
  const [run] = handed.flatMap(({ runs }) => runs);
  expect(run).toMatchObject({ kind: 'post', open: false });
  expect(JSON.parse(`{${run?.members}}`)).toMatchObject({ name: 'node', error: 'the run was cancelled' });
  tracer?.handler.handleChainStart({ id: ['late'] }, {}, randomUUID(), rootId);
  expect(handed).toHaveLength(1);
});

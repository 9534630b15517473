import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { openTracer } from '../../../../pipelines/agents/traces/run-tracer.ts';
import type { ChildRunBatch, TraceInstructions } from '../../../../pipelines/agents/traces/trace-order.ts';
import { formatDottedOrderSegment } from '../../../../pipelines/ingest/run-event/dotted-order.ts';
import { graph as loop } from '../../../agents/projects/traced/loop.ts';
import { graph as whole } from '../../../agents/projects/traced/whole.ts';

/** The trace that a worker collects, without stores. */

afterEach(() => vi.unstubAllEnvs());

const rootId = randomUUID();
const rootMicros = Date.now() * 1_000;
const order: TraceInstructions = {
  root: formatDottedOrderSegment(rootMicros, rootId),
  rootMicros,
  values: true,
  thread: true,
  maxRuns: 1_000,
  maxCharacters: 1_000_000,
  maxRunBytes: 1_000_000,
};

/** Runs a graph. @returns the final state of each traced run, and the last batch with its counters. */
async function collect(graph: typeof loop | typeof whole, input: object, changed: Partial<TraceInstructions> = {}) {
  const batches: ChildRunBatch[] = [];
  const tracer = openTracer({ ...order, ...changed }, (runs) => void batches.push(runs));
  const callbacks = tracer === undefined ? [] : [tracer.handler as never];
  await graph.invoke(input as never, { runId: rootId, callbacks, recursionLimit: 1_000 });
  tracer?.close('over');
  const runs = new Map<string, Record<string, unknown>>();
  for (const { runId, location, members, values } of batches.flatMap((batch) => batch.runs)) {
    runs.set(runId, { ...runs.get(runId), ...JSON.parse(`{${location},${members}${values}}`) });
  }
  return { traced: tracer !== undefined, runs: [...runs.values()], marks: batches.at(-1) };
}

const hello = { messages: [{ role: 'human', content: 'hello' }] };

describe('tracing variables of the project', () => {
  it.each(['LANGSMITH_TRACING', 'LANGSMITH_TRACING_V2', 'LANGCHAIN_TRACING_V2'])(
    '%s with any value disables the tracer of the worker',
    (name) => {
      vi.stubEnv(name, 'false');
      expect(openTracer(order, () => undefined)).toBeUndefined();
      vi.stubEnv(name, 'true');
      expect(openTracer(order, () => undefined)).toBeUndefined();
      vi.stubEnv(name, '');
      expect(openTracer(order, () => undefined)).toBeDefined();
    },
  );

  it('LANGSMITH_HIDE_INPUTS and LANGSMITH_HIDE_OUTPUTS remove inputs and outputs from its runs', async () => {
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
  // Each round consists of a node and its routing function.
  it('counts the runs beyond maxRuns as dropped', async () => {
    const { runs, marks } = await collect(loop, { rounds: 30 }, { maxRuns: 10 });
    expect(runs).toHaveLength(10);
    expect(marks).toMatchObject({ droppedRuns: 51, droppedValues: 0 });
  });

  it('drops and counts values beyond maxCharacters, and keeps their runs', async () => {
    const { runs, marks } = await collect(loop, { rounds: 30 }, { maxCharacters: 500 });
    expect(runs).toHaveLength(61);
    const runsWithoutValues = runs.filter(({ extra }) => 'values_left_out' in (extra as { metadata: object }).metadata);
    expect(runsWithoutValues.length).toBeGreaterThan(10);
    expect(marks?.droppedValues).toBeGreaterThan(20);
  });
});

it('places every run below the root, starting no earlier than it and ending no earlier than its start', async () => {
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

it('ends open runs with the reason when the graph run ends', () => {
  const batches: ChildRunBatch[] = [];
  const tracer = openTracer(order, (runs) => void batches.push(runs));
  tracer?.handler.handleChainStart({ id: ['node'] }, { n: 1 }, randomUUID(), rootId);
  tracer?.close('the run was cancelled');
  const [run] = batches.flatMap(({ runs }) => runs);
  expect(run).toMatchObject({ kind: 'post', open: false });
  expect(JSON.parse(`{${run?.members}}`)).toMatchObject({ name: 'node', error: 'the run was cancelled' });
  tracer?.handler.handleChainStart({ id: ['late'] }, {}, randomUUID(), rootId);
  expect(batches).toHaveLength(1);
});

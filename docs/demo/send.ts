import { Client } from 'langsmith';
import { RunTree } from 'langsmith/run_trees';
import { type PlannedTrace, randomNumbers, type Sender, type Step } from './plan.ts';
import type { DemoServer } from './server.ts';
import type { DemoTenants } from './tenants.ts';

export interface Sent {
  /** Root runs, in the order of the plan. */
  readonly roots: readonly RunTree[];
  /** Every run as an object of the SDK. */
  readonly runs: readonly RunTree[];
  readonly lateEnds: number;
}

/** Traces between two updates of the progress bar; each update waits until they are durable. */
const batchTraces = 100;

/**
 * Sends the traces with the stock SDK, with one client for each key, like independent programs. First everything except
 * the ends of the late traces, then those.
 */
export async function sendTraces(
  traces: readonly PlannedTrace[],
  { url }: DemoServer,
  { keyOf }: DemoTenants,
  onProgress: (traces: number, runs: number) => void,
): Promise<Sent> {
  const clients = new Map<Sender, Client>();
  for (const [sender, { key }] of keyOf) clients.set(sender, new Client({ apiUrl: url, apiKey: key }));
  const durable = () => Promise.all([...clients.values()].map((client) => client.awaitPendingTraceBatches()));
  const random = randomNumbers(7);
  const roots: RunTree[] = [];
  const ends: (() => Promise<void>)[] = [];
  const runs: RunTree[] = [];
  for (const [index, trace] of traces.entries()) {
    const client = clients.get(trace.sender) as Client;
    const root = new RunTree({
      name: trace.root.name,
      run_type: trace.root.type,
      project_name: trace.project,
      inputs: { question: trace.question },
      start_time: trace.startMs,
      tags: ['demo'],
      client,
    });
    roots.push(root);
    const end = await sendRun(root, trace.root, trace, random, runs);
    if (trace.endsLate) ends.push(end);
    else await end();
    if ((index + 1) % batchTraces === 0 || index + 1 === traces.length) {
      await durable();
      onProgress(index + 1, runs.length);
    }
  }
  for (const end of ends) await end();
  await durable();
  return { roots, runs, lateEnds: ends.length };
}

/** Posts a run and its child runs. @returns a function that sends its end. */
async function sendRun(
  run: RunTree,
  step: Step,
  trace: PlannedTrace,
  random: () => number,
  sent: RunTree[],
  durationMs = trace.durationMs,
): Promise<() => Promise<void>> {
  await run.postRun();
  sent.push(run);
  const innerSteps = step.steps ?? [];
  let startMs = run.start_time;
  for (const [index, inner] of innerSteps.entries()) {
    const innerMs = Math.max(1, Math.floor(durationMs * inner.share));
    const child = run.createChild({
      name: inner.name,
      run_type: inner.type,
      inputs: { question: trace.question },
      start_time: startMs,
    });
    // The last run fails.
    const last = index === innerSteps.length - 1;
    const end = await sendRun(child, inner, { ...trace, fails: trace.fails && last }, random, sent, innerMs);
    await end();
    startMs += innerMs;
  }
  const failure = trace.fails ? 'TimeoutError: the model did not answer' : undefined;
  const outputs = failure === undefined ? outputsOf(step, random) : undefined;
  return async () => {
    await run.end(outputs, failure, run.start_time + durationMs);
    await run.patchRun();
  };
}

function outputsOf(step: Step, random: () => number): Record<string, unknown> {
  if (step.type !== 'llm') return { result: `${step.name}: done` };
  const input = Math.floor(300 + random() * 2_000);
  const output = Math.floor(40 + random() * 400);
  return {
    messages: [{ role: 'assistant', content: 'Here is what I found.' }],
    usage_metadata: {
      input_tokens: input,
      output_tokens: output,
      total_tokens: input + output,
      input_cost: input * 3e-6,
      output_cost: output * 15e-6,
      total_cost: input * 3e-6 + output * 15e-6,
    },
  };
}

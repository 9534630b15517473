import { randomUUID } from 'node:crypto';
import { askRunlake } from '../ask-runlake.ts';
import { buildTrace, type SentRun, sendRuns } from './send-traces.ts';

interface Target {
  readonly url: string;
  readonly apiKey: string;
}

/** What an experiment returns for an example. */
export interface Result {
  /** Unset: the run failed with `error`. */
  readonly outputs?: Readonly<Record<string, unknown>>;
  readonly error?: string;
  readonly seconds: number;
  /** Scores are numbers, labels are texts. */
  readonly feedback: Readonly<Record<string, number | string>>;
}

export interface SentExample {
  readonly id: string;
  readonly inputs: Readonly<Record<string, unknown>>;
}

/** Sends an experiment with a run and feedback for each example, as `evaluate()` of the SDK does, and returns its id. */
export async function sendExperiment<E extends SentExample>(
  target: Target,
  { name, datasetId }: { readonly name: string; readonly datasetId: string },
  examples: readonly E[],
  solve: (example: E, index: number) => Result,
): Promise<string> {
  const id = randomUUID();
  await askRunlake(target, '/sessions', { body: { id, name, reference_dataset_id: datasetId } });
  const start = Date.now() - 60_000;
  const sent = examples.map((example, index) => {
    const { outputs, error, seconds, feedback } = solve(example, index);
    const result = error === undefined ? { outputs } : { error };
    const template = { name: 'solve', until: seconds * 1000, inputs: example.inputs, ...result };
    const [run] = buildTrace(name, start, template) as [SentRun];
    return { run: { ...run, reference_example_id: example.id }, feedback };
  });
  await sendRuns(
    target.url,
    target.apiKey,
    sent.map(({ run }) => run),
  );
  await Promise.all(
    sent.flatMap(({ run, feedback }) =>
      Object.entries(feedback).map(([key, value]) =>
        askRunlake(target, '/feedback', {
          body: {
            run_id: run.id,
            trace_id: run.id,
            key,
            ...(typeof value === 'number' ? { score: value } : { value }),
          },
        }),
      ),
    ),
  );
  return id;
}

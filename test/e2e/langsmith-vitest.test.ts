import { execFile } from 'node:child_process';
import { Client } from 'langsmith';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ApiUnderTest, addOrganization, startApi } from '../api/start-api.ts';

/** The vitest integration of the stock SDK: each test is an example, and each run of the tests an experiment. */

let api: ApiUnderTest;
let client: Client;
let address: { readonly apiUrl: string; readonly apiKey: string };

beforeAll(async () => {
  api = await startApi();
  const { adminKey: apiKey } = await addOrganization(api.database, 'acme');
  address = { apiUrl: await api.server.listen({ port: 0, host: '127.0.0.1' }), apiKey };
  client = new Client(address);
});
afterAll(() => api.close());

/** Runs `test/e2e/evals` with vitest. */
function runEvaluations(): Promise<{ code: number; output: string }> {
  const args = ['node_modules/vitest/vitest.mjs', 'run', '--config', 'test/e2e/evals/vitest.config.ts', '--root', '.'];
  const env = {
    PATH: process.env.PATH,
    LANGSMITH_ENDPOINT: address.apiUrl,
    LANGSMITH_API_KEY: address.apiKey,
    LANGSMITH_TRACING: 'true',
  };
  return new Promise((resolve) => {
    execFile(process.execPath, args, { env, timeout: 50_000 }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), output: stdout + stderr });
    });
  });
}

interface ExampleWithRuns {
  readonly inputs: { n: number };
  readonly outputs: object;
  readonly runs: {
    outputs: object;
    error: string | null;
    feedback_stats: Record<string, { n: number; avg: number }>;
  }[];
}

it('creates a dataset, and an experiment for each run of the tests', async () => {
  const first = await runEvaluations();
  // One of the two tests fails.
  expect([first.code, first.output]).toEqual([1, expect.stringMatching(/1 failed.*1 passed/)]);
  await runEvaluations();
  await api.settled();

  const dataset = await client.readDataset({ datasetName: 'squares of vitest' });
  expect(dataset.example_count).toBe(2);
  const sessions = (await api.ask(address.apiKey, 'GET', `/sessions?reference_dataset=${dataset.id}`)).body;
  expect(sessions).toHaveLength(2);
  const session_ids = sessions.map(({ id }: { id: string }) => id);
  const { body } = await api.ask(address.apiKey, 'POST', `/datasets/${dataset.id}/runs`, { session_ids });
  const examples = (body as ExampleWithRuns[]).sort((one, other) => one.inputs.n - other.inputs.n);
  expect(examples.map(({ inputs, outputs }) => [inputs, outputs])).toEqual([
    [{ n: 1 }, { square: 1 }],
    [{ n: 3 }, { square: 9 }],
  ]);
  for (const { inputs, runs } of examples) {
    expect(runs).toHaveLength(2);
    for (const run of runs) {
      expect(run.outputs).toEqual({ square: inputs.n === 3 ? 6 : 1 });
      expect(run.feedback_stats.close).toMatchObject({ n: 1, avg: 1 });
      expect(run.feedback_stats.pass).toMatchObject({ n: 1, avg: inputs.n === 3 ? 0 : 1 });
    }
  }
}, 120_000);

import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from 'langsmith';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { addOrganization, startApi } from '../api/start-api.ts';
import { forSuite } from '../for-suite.ts';
import { installLocked } from '../locked-packages.ts';

/**
 * The integrations of the stock SDK with vitest and jest: each test is an example, and each execution of the tests is
 * an experiment.
 */

const root = fileURLToPath(new URL('../..', import.meta.url));

const api = forSuite(() => startApi());
let client: Client;
let address: { readonly apiUrl: string; readonly apiKey: string };

beforeAll(async () => {
  const { adminKey: apiKey } = await addOrganization(api.database, 'acme');
  address = { apiUrl: await api.listen(), apiKey };
  client = new Client(address);
});

/** Output of a run in which one of two tests fails. */
const summaries = { vitest: /1 failed.*1 passed/, jest: /✓ Passed[\s\S]*✕ Failed/ } as const;

/** Program, arguments and folder that run the evaluations of `test/e2e/evals` and `test/e2e/jest`. */
const runners = {
  vitest: async () => ({
    args: ['node_modules/vitest/vitest.mjs', 'run', '--config', 'test/e2e/evals/vitest.config.ts', '--root', '.'],
    cwd: root,
  }),
  jest: async () => {
    const source = join(root, 'test/e2e/jest');
    const folder = await installLocked(source, 'jest');
    const cwd = mkdtempSync(join(folder, 'evaluations-'));
    cpSync(source, cwd, { recursive: true });
    onTestFinished(() => rmSync(cwd, { recursive: true, force: true }));
    return {
      args: ['--experimental-vm-modules', '../node_modules/jest/bin/jest.js', '--config', 'jest.config.json'],
      cwd,
    };
  },
} as const;

async function runEvaluations(runner: keyof typeof runners): Promise<{ code: number; output: string }> {
  const { args, cwd } = await runners[runner]();
  const env = {
    PATH: process.env.PATH,
    LANGSMITH_ENDPOINT: address.apiUrl,
    LANGSMITH_API_KEY: address.apiKey,
    LANGSMITH_TRACING: 'true',
  };
  return new Promise((resolve) => {
    execFile(process.execPath, args, { cwd, env, timeout: 50_000 }, (error, stdout, stderr) => {
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

it.each(['vitest', 'jest'] as const)(
  '%s creates a dataset, and an experiment for each run of the tests',
  async (runner) => {
    const first = await runEvaluations(runner);
    // One of the two tests fails.
    expect([first.code, first.output]).toEqual([1, expect.stringMatching(summaries[runner])]);
    await runEvaluations(runner);
    await api.settled();

    const dataset = await client.readDataset({ datasetName: `squares of ${runner}` });
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
  },
  120_000,
);

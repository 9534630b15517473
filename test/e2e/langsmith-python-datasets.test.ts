import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ApiUnderTest, addOrganization, startApi } from '../api/start-api.ts';
import { pythonEnvironment } from './python/environment.ts';

const script = fileURLToPath(new URL('python/evaluate.py', import.meta.url));
const environment = pythonEnvironment();

let api: ApiUnderTest;
beforeAll(async () => {
  if ('python' in environment) api = await startApi();
});
afterAll(() => api?.close());

test.skipIf('missing' in environment)(
  'the stock Python SDK evaluates, compares and shares, unmodified',
  async () => {
    if ('missing' in environment) return;
    const { adminKey } = await addOrganization(api.database, 'acme');
    const url = await api.listen();
    const { stdout } = await promisify(execFile)(environment.python, [script], {
      env: { PATH: process.env.PATH, LANGSMITH_ENDPOINT: url, LANGSMITH_API_KEY: adminKey },
      timeout: 90_000,
    });
    // The SDK prints where to see the results, before the script prints its line.
    const found = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
    const scores = (third: number) => [1, 1, 2, 2, 3, 3].map((n) => [n, n === 3 ? third : 1]);
    const { dataset, ...rest } = found;
    expect(rest).toEqual({
      uploaded: ['3', '2', '1'],
      scores: { wrong: scores(0), right: scores(1) },
      notes: [
        ['1', 1],
        ['2', 1],
      ],
      late: [1, 1],
      extended: [1, 3],
      awaited: [1, 1, 1],
      from_run: [{ n: 5 }, { square: 25 }, 'five'],
      compared: 3,
      experiments: 3,
      odd: [1, 3],
      filtered: [expect.any(Number)],
      splits: ['checked', 'even', 'odd'],
      upserted: [1, 'new', 'new'],
      shared: 'squares',
      shared_experiments: 3,
    });
  },
  120_000,
);

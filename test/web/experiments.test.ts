import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { beforeAll, describe, expect, it } from 'vitest';
import { compareExample } from '../../web/src/screens/datasets/comparison.ts';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { eventually, expectAccessible, openPages, startSignedIn } from './browser.ts';
import { sendExperiment } from './send-experiments.ts';

const script = '<img src=x onerror="alert(1)"><script>alert(2)</script>';

const signedIn = forSuite(() => startSignedIn());
let datasetId: string;
/** Ids of the experiments: the first, one that is partly worse and partly better, and one that fails. */
let ids: readonly string[];

const post = (path: string, body: object) => askRunlake(signedIn.runlake, path, { body });

interface SumExample {
  readonly id: string;
  readonly inputs: { readonly n: number };
}

/** Sends an experiment with feedback on the first ten examples, and on the experiment itself. */
async function addExperiment(
  name: string,
  examples: readonly SumExample[],
  solve: (n: number) => Solution,
): Promise<string> {
  const id = await sendExperiment(signedIn.runlake, { name, datasetId }, examples, ({ inputs: { n } }, index) => {
    const { error, ...outputs } = solve(n);
    const { sum } = outputs;
    const feedback = {
      correct: sum === n + 1 ? 1 : 0,
      ...(sum === undefined ? {} : { length: String(sum).length }),
      [script]: sum === undefined ? 'none' : 'number',
    };
    return {
      ...(error === undefined ? { outputs } : { error }),
      seconds: n / 100,
      feedback: index < 10 ? feedback : {},
    };
  });
  await post('/feedback', { session_id: id, key: 'count', score: examples.length });
  return id;
}

interface Solution {
  readonly sum?: number;
  readonly note?: string;
  readonly error?: string;
}

const client = forSuite(() => new Client({ apiUrl: signedIn.runlake.url, apiKey: signedIn.runlake.apiKey }));
beforeAll(async () => {
  ({ id: datasetId } = await client.createDataset('sums'));
  const examples = Array.from({ length: 24 }, (_, n) => ({ id: randomUUID(), inputs: { n } }));
  await client.createExamples(
    examples.map(({ id, inputs }) => ({ id, dataset_id: datasetId, inputs, outputs: { sum: inputs.n + 1 } })),
  );
  await post('/feedback-configs', {
    feedback_key: 'length',
    feedback_config: { type: 'continuous' },
    is_lower_score_better: true,
  });
  ids = [
    await addExperiment('first', examples, (n) => ({ sum: n === 3 ? 0 : n + 1 })),
    // 3 is right now, 7 is wrong and longer.
    await addExperiment('second', examples, (n) => ({
      sum: n === 7 ? 1000 : n + 1,
      ...(n === 5 ? { note: script } : {}),
    })),
    await addExperiment(script, examples, (n) =>
      n === 9 ? { error: `no sum ${script}` } : { sum: n === 3 ? 0 : n + 1 },
    ),
  ];
});
const page = openPages(signedIn);

const table = () => page.getByRole('table', { name: 'Examples' });
const rowCount = async () => Number(await table().getAttribute('aria-rowcount')) - 1;
const figures = () => page.getByRole('region', { name: 'Figures of the experiments' });
const open = (...experiments: (string | undefined)[]) =>
  page.goto(`/datasets/${datasetId}/compare?selectedSessions=${experiments.join(',')}`);

describe('the comparison of two experiments', () => {
  const run = (project_id: string, outputs: unknown, scores: Record<string, number>, status = 'SUCCESS') => ({
    ...{ id: randomUUID(), project_id, outputs, status },
    feedback_stats: Object.fromEntries(Object.entries(scores).map(([key, avg]) => [key, { n: 1, avg }])),
  });
  const compare = (...runs: ReturnType<typeof run>[]) => {
    const example = { id: '1', inputs: {}, created_at: '', modified_at: '' };
    return compareExample({ ...example, runs }, ['a', 'b'], new Set(['length']));
  };
  const judged = (...runs: ReturnType<typeof run>[]) => {
    const { isDifferent, isRegression } = compare(...runs);
    return [isDifferent, isRegression];
  };

  it('takes the average of repetitions, in any order, and of members in any order', () => {
    const repeated = compare(
      run('a', 1, { s: 1 }),
      run('a', 2, { s: 0 }),
      run('b', 2, { s: 0.5 }),
      run('b', 1, { s: 0.5 }),
    );
    expect(repeated).toMatchObject({ isDifferent: false, isRegression: false });
    expect(repeated.cells[0]?.scores.get('s')).toBe(0.5);
    expect(judged(run('a', { x: 1, y: [{ p: 1, q: 2 }] }, {}), run('b', { y: [{ q: 2, p: 1 }], x: 1 }, {}))).toEqual([
      false,
      false,
    ]);
  });

  it('knows what is worse: a score, a high one where low ones are better, and an error', () => {
    expect(judged(run('a', 1, { s: 1 }), run('b', 1, { s: 0.9 }))).toEqual([true, true]);
    expect(judged(run('a', 1, { s: 0.9 }), run('b', 1, { s: 1 }))).toEqual([true, false]);
    expect(judged(run('a', 1, { length: 1 }), run('b', 1, { length: 2 }))).toEqual([true, true]);
    expect(judged(run('a', 1, {}), run('b', 1, {}, 'ERROR'))).toEqual([true, true]);
    expect(judged(run('a', 1, {}, 'ERROR'), run('b', 1, {}))).toEqual([true, false]);
    expect(judged(run('a', 0.1 + 0.2, { s: 0.1 + 0.2 }), run('b', 0.1 + 0.2, { s: 0.3 }))).toEqual([false, false]);
  });

  it('does not call a run or score that is missing worse', () => {
    expect(judged(run('a', 1, { s: 1 }))).toEqual([false, false]);
    expect(judged(run('a', 1, { s: 1 }), run('b', 1, {}))).toEqual([true, false]);
  });
});

describe('the experiments of a dataset', () => {
  it('are listed with their figures, chosen and compared', async () => {
    await page.goto(`/datasets/${datasetId}?tab=Experiments`);
    const rows = page.getByRole('region', { name: 'Experiments' }).getByRole('row');
    await eventually(() => rows.count()).toBe(4);
    await rows.filter({ hasText: 'first' }).getByRole('cell', { name: '0.9' }).waitFor();
    await expectAccessible(page);
    await rows.filter({ hasText: 'first' }).getByRole('checkbox').check();
    await rows.filter({ hasText: 'second' }).getByRole('checkbox').check();
    await page.reload();
    await page.getByRole('button', { name: 'Compare 2' }).click();
    await eventually(() => new URL(page.url()).searchParams.get('selectedSessions')).toBe(`${ids[0]},${ids[1]}`);
    await table().waitFor();
  });

  it('say that there are none', async () => {
    const { id } = await client.createDataset('without experiments');
    await page.goto(`/datasets/${id}?tab=Experiments`);
    await page.getByText('There are no experiments on this dataset yet').waitFor();
    await page.goto(`/datasets/${id}/compare`);
    await page.getByText('No experiments are chosen').waitFor();
    await expectAccessible(page);
  });
});

describe('experiments side by side', () => {
  it('show figures, and every example with its reference and results, page by page', async () => {
    await open(ids[0], ids[1]);
    await table().waitFor();
    await eventually(async () => {
      await page.locator('.virtual-scroll').evaluate((element) => element.scrollTo(0, element.scrollHeight));
      return rowCount();
    }).toBe(24);
    await page.getByText('24 examples; these are all.').waitFor();
    const second = figures().getByRole('row').filter({ hasText: 'second' });
    // After the score `correct` and the count: the second one has a longer sum, and short ones are better.
    await eventually(() => second.getByRole('cell').nth(3).textContent()).toMatch(/\+0.3 worse$/);
    expect(await second.getByRole('cell').nth(1).textContent()).toBe('0.9');
    await expectAccessible(page);
  });

  it('show only differences or regressions, with words for better and worse', async () => {
    await open(ids[0], ids[1]);
    await page.getByRole('button', { name: 'Differences' }).click();
    await eventually(rowCount).toBe(3);
    await page.getByText('3 of 24 examples').waitFor();
    const row = (n: number) =>
      table()
        .getByRole('row')
        .filter({ hasText: `{"n":${n}}` });
    await row(3).getByText('+1 better').waitFor();
    await row(5).getByText('note').first().waitFor();
    await page.getByRole('button', { name: 'Regressions' }).click();
    await eventually(rowCount).toBe(1);
    await row(7).getByText('−1 worse').waitFor();
    await row(7).getByText('+3 worse').waitFor();
    await expectAccessible(page);
    // Compared to the second experiment, the first one is worse where it was better.
    await page.getByRole('button', { name: 'Make first' }).click();
    await row(3).getByText('−1 worse').waitFor();
    await page.reload();
    await eventually(rowCount).toBe(1);
  });

  it('are opened by keyboard, link to the traces, and show hostile values and errors as text', async () => {
    await open(...ids);
    await page.getByRole('button', { name: 'Regressions' }).click();
    // Of 7 in the second experiment, and the error of 9 in the third one.
    await eventually(rowCount).toBe(2);
    const failed = table().getByRole('row').filter({ hasText: '{"n":9}' });
    await failed.getByText('no sum').first().waitFor();
    await failed.focus();
    await page.keyboard.press('Enter');
    const detail = page.getByRole('region', { name: 'Example', exact: true });
    await detail.getByText('alert(2)').first().waitFor();
    await expectAccessible(page);
    expect(await page.locator('img[src=x]').count()).toBe(0);
    await page.keyboard.press('Escape');
    await eventually(() => detail.count()).toBe(0);
    await failed.focus();
    await page.keyboard.press('Enter');
    await detail.getByRole('link', { name: 'Trace' }).first().click();
    await page.getByRole('tree', { name: 'Runs' }).waitFor();
  });

  it('show only the feedback of a pairwise comparison', async () => {
    const id = randomUUID();
    await post('/datasets/comparative', {
      id,
      experiment_ids: ids.slice(0, 2),
      name: `${script} pairwise`,
      reference_dataset_id: datasetId,
    });
    const { runs: sent } = await askRunlake<{ runs: { id: string }[] }>(signedIn.runlake, '/runs/query', {
      body: { session: [ids[1]], is_root: true, limit: 100 },
    });
    // The table renders only rows in view, so each run gets feedback.
    for (const { id: run_id } of sent)
      await post('/feedback', {
        ...{ run_id, trace_id: run_id, key: 'preferred', score: 1 },
        comparative_experiment_id: id,
      });
    // Feedback is stored after its request.
    const path = `/feedback?limit=100&comparative_experiment_id=${id}`;
    await eventually(async () => (await askRunlake(signedIn.runlake, path)).length).toBe(sent.length);
    await page.goto(`/datasets/${datasetId}?tab=Experiments`);
    await page.getByRole('region', { name: 'Pairwise comparisons' }).getByRole('link', { name: 'pairwise' }).click();
    await table().waitFor();
    await table().getByText('preferred 1').first().waitFor();
    expect(await table().getByText('correct').count()).toBe(0);
    await expectAccessible(page);
  });

  it('open from the link of the SDK, with one experiment too', async () => {
    await page.goto(`/o/${datasetId}/datasets/${datasetId}/compare?selectedSessions=${ids[1]}`);
    await eventually(() => new URL(page.url()).pathname).toBe(`/datasets/${datasetId}/compare`);
    await table().waitFor();
    await expect(page.getByRole('button', { name: 'Regressions' }).isDisabled()).resolves.toBe(true);
  });

  it('say so when the API fails', async () => {
    await page.route('**/experiment-runs', (route) =>
      route.fulfill({ status: 400, json: { detail: 'The runs of this page are too large.' } }),
    );
    await open(ids[0], ids[1]);
    await eventually(() => page.getByRole('alert').textContent()).toContain('The runs of this page are too large.');
    await expectAccessible(page);
  });
});

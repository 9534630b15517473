import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { eventually, expectAccessible, type SignedInBrowser, startSignedIn } from './browser.ts';
import { post, sendExperiment } from './send-experiments.ts';

const script = '<img src=x onerror="alert(1)"><script>alert(2)</script>';

let signedIn: SignedInBrowser;
let client: Client;
let page: Page;
let problems: string[];
let datasetId: string;
/** Ids of the experiments: the first, one that is partly worse and partly better, and one that fails. */
let ids: readonly string[];

interface SumExample {
  readonly id: string;
  readonly inputs: { readonly n: number };
}

/** Sends an experiment with feedback on the first ten examples. */
function addExperiment(name: string, examples: readonly SumExample[], solve: (n: number) => Solution): Promise<string> {
  return sendExperiment(signedIn.runlake, { name, datasetId }, examples, ({ inputs: { n } }, index) => {
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
}

interface Solution {
  readonly sum?: number;
  readonly note?: string;
  readonly error?: string;
}

beforeAll(async () => {
  signedIn = await startSignedIn();
  client = new Client({ apiUrl: signedIn.runlake.url, apiKey: signedIn.runlake.apiKey });
  ({ id: datasetId } = await client.createDataset('sums'));
  const examples = Array.from({ length: 24 }, (_, n) => ({ id: randomUUID(), inputs: { n } }));
  await client.createExamples(
    examples.map(({ id, inputs }) => ({ id, dataset_id: datasetId, inputs, outputs: { sum: inputs.n + 1 } })),
  );
  await post(signedIn.runlake, '/feedback-configs', {
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
afterAll(() => signedIn?.close());
beforeEach(async () => {
  ({ page, problems } = await signedIn.openPage());
});

const table = () => page.getByRole('table', { name: 'Examples' });
const rowCount = async () => Number(await table().getAttribute('aria-rowcount')) - 1;
const figures = () => page.getByRole('region', { name: 'Figures of the experiments' });
const open = (...experiments: (string | undefined)[]) =>
  page.goto(`/datasets/${datasetId}/compare?selectedSessions=${experiments.join(',')}`);

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
    expect(problems).toEqual([]);
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
    // Both have one wrong sum. The second one has a longer sum, and short ones are better.
    await eventually(() => second.getByRole('cell').nth(3).textContent()).toMatch(/\+0.3 worse$/);
    expect(await second.getByRole('cell').nth(1).textContent()).toBe('0.9');
    await expectAccessible(page);
    expect(problems).toEqual([]);
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
    await page.getByRole('button', { name: 'Compare to this' }).click();
    await row(3).getByText('−1 worse').waitFor();
    await page.reload();
    await eventually(rowCount).toBe(1);
    expect(problems).toEqual([]);
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
    expect(problems).toEqual([]);
  });

  it('open from the link of the SDK, with one experiment too', async () => {
    await page.goto(`/o/${datasetId}/datasets/${datasetId}/compare?selectedSessions=${ids[1]}`);
    await eventually(() => new URL(page.url()).pathname).toBe(`/datasets/${datasetId}/compare`);
    await table().waitFor();
    await expect(page.getByRole('button', { name: 'Regressions' }).isDisabled()).resolves.toBe(true);
    expect(problems).toEqual([]);
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

import { Client } from 'langsmith';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../for-suite.ts';
import {
  eventually,
  expectAccessible,
  loseResponse,
  openContext,
  openPages,
  openWithPermissions,
  startSignedIn,
  watchPage,
} from './browser.ts';

const script = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
const bidi = 'safe\u202etxt.exe\u200b';

const signedIn = forSuite(() => startSignedIn());
const client = forSuite(() => new Client({ apiUrl: signedIn.runlake.url, apiKey: signedIn.runlake.apiKey }));
const page = openPages(signedIn);

const table = () => page.getByRole('table', { name: 'Examples' });
const detail = () => page.getByRole('region', { name: 'Example', exact: true });
const field = (name: string) => page.getByRole('textbox', { name });
const rowCount = async () => Number(await table().getAttribute('aria-rowcount')) - 1;

async function addDataset(name: string, count: number): Promise<string> {
  const { id } = await client.createDataset(name, { description: `${name}, described` });
  const examples = Array.from({ length: count }, (_, index) => ({
    dataset_id: id,
    inputs: { question: `What is ${index} + 1?` },
    outputs: { answer: String(index + 1) },
    metadata: { level: index % 3 },
    split: index % 2 === 0 ? 'even' : 'odd',
  }));
  if (count > 0) await client.createExamples(examples);
  return id;
}

describe('the list of datasets', () => {
  it('says that there are none, and finds those that there are by name', async () => {
    await page.goto('/datasets');
    await page.getByText('There are no datasets yet').waitFor();
    await expectAccessible(page);
    await addDataset('sums of small numbers', 3);
    await addDataset('capitals', 2);
    await page.reload();
    const row = page.getByRole('row').filter({ hasText: 'sums of small numbers' });
    await row.getByText('sums of small numbers, described').waitFor();
    await eventually(() => row.getByRole('cell').nth(2).textContent()).toBe('3');
    await page.keyboard.press('/');
    await page.keyboard.type('CAPI');
    await eventually(() => page.getByRole('row').count()).toBe(2);
    await eventually(() => new URL(page.url()).search).toBe('?name=CAPI');
    await expectAccessible(page);
    await page.getByRole('searchbox').fill('nothing like it');
    await page.getByText('No dataset has this name').waitFor();
  });
});

describe('the examples of a dataset', () => {
  it('are listed page by page, of which only rows in view are rendered, and filtered', async () => {
    const id = await addDataset('many sums', 250);
    await page.goto(`/datasets/${id}`);
    await table().waitFor();
    expect(await rowCount()).toBe(100);
    expect(await table().getByRole('row').count()).toBeLessThan(80);
    await expectAccessible(page);
    await eventually(async () => {
      await page.locator('.virtual-scroll').evaluate((element) => element.scrollTo(0, element.scrollHeight));
      return rowCount();
    }).toBe(250);
    await page.getByText('250 examples; these are all.').waitFor();
    await page.getByLabel('Split').selectOption('odd');
    await eventually(async () => table().getByRole('row').filter({ hasText: 'even' }).count()).toBe(0);
    await page.getByText('125 examples; these are all.').waitFor();
    await page.getByRole('searchbox', { name: 'Find in inputs and outputs' }).fill('is 17 +');
    await page.keyboard.press('Enter');
    await eventually(rowCount).toBe(1);
    await page.reload();
    await eventually(rowCount).toBe(1);
    await page.getByLabel('Split').selectOption('even');
    await page.getByText('No examples match').waitFor();
  });

  it('are opened by keyboard', async () => {
    const id = await addDataset('keys', 5);
    await page.goto(`/datasets/${id}`);
    await table().getByRole('row').nth(1).focus();
    await page.keyboard.press('j');
    await eventually(() => page.evaluate(() => document.activeElement?.getAttribute('data-index'))).toBe('1');
    await page.keyboard.press('Enter');
    await eventually(() => table().locator('[aria-current="true"]').getAttribute('data-index')).toBe('1');
    const question = (await table().locator('[aria-current="true"]').getByRole('cell').first().textContent()) ?? '';
    expect(question).toMatch(/^What is/);
    await detail().getByText(question).waitFor();
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await eventually(() => detail().count()).toBe(0);
    await page.keyboard.press('?');
    await page.getByRole('dialog').getByText('Next or previous example').waitFor();
  });

  it('are added, changed and deleted as JSON, with all digits of numbers', async () => {
    const id = await addDataset('edited', 0);
    await page.goto(`/datasets/${id}`);
    await page.getByText('The dataset has no examples yet').waitFor();
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Add an example' }).click();
    await field('Inputs').fill('{"n": 9007199254740993');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('This is not JSON').waitFor();
    await expectAccessible(page);
    await field('Inputs').fill('[1]');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('This is JSON, but not an object').waitFor();
    await field('Inputs').fill('{"n": 9007199254740993}');
    await field('Outputs').fill('{"even": false}');
    await field('Metadata').fill('{"source": "me"}');
    await field('Splits').fill('hard, new');
    await page.getByRole('button', { name: 'Save' }).click();
    await detail().getByText('9007199254740993').waitFor();
    await eventually(rowCount).toBe(1);
    await detail().getByText('hard', { exact: true }).waitFor();

    await page.getByRole('button', { name: 'Edit' }).click();
    expect(await field('Inputs').inputValue()).toContain('9007199254740993');
    await field('Outputs').fill('{"even": 0.5}');
    await page.getByRole('button', { name: 'Save' }).click();
    await detail().getByText('0.5').waitFor();
    const stored = await fetch(`${signedIn.runlake.url}/api/v1/examples?dataset=${id}`, {
      headers: { 'x-api-key': signedIn.runlake.apiKey },
    });
    const [example] = await stored.json();
    expect(example).toMatchObject({
      outputs: { even: 0.5 },
      metadata: { source: 'me', dataset_split: ['hard', 'new'] },
    });
    await page.getByRole('button', { name: 'Delete the example' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Delete the example' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('This version has no examples').waitFor();
  });

  it('are added once, although the response to the first request is lost', async () => {
    const id = await addDataset('repeated', 0);
    await page.goto(`/datasets/${id}?example=new`);
    await loseResponse(page, 'POST', /\/examples$/);
    await field('Inputs').fill('{"n": 1}');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('alert').getByText('Runlake does not answer').waitFor();
    await page.getByRole('button', { name: 'Save' }).click();
    await detail().waitFor();
    await eventually(rowCount).toBe(1);
  });

  it('are refused with what the API says', async () => {
    const { id } = await client.createDataset('with a schema', {
      inputsSchema: { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] },
    });
    await page.goto(`/datasets/${id}?example=new`);
    await field('Inputs').fill('{"n": "one"}');
    await page.getByRole('button', { name: 'Save' }).click();
    await eventually(() => page.getByRole('alert').textContent()).toContain('number');
    await expectAccessible(page);
  });

  it('show hostile values as text', async () => {
    const { id } = await client.createDataset(`${script}${bidi}`, { description: script });
    await client.createExamples([
      {
        dataset_id: id,
        inputs: { messages: [{ role: script, content: `${script} ${bidi}` }], [script]: 'lorem '.repeat(150_000) },
        outputs: { [bidi]: script },
        metadata: { [script]: script },
        split: script,
      },
    ]);
    await page.goto('/datasets');
    await page.getByRole('link', { name: 'alert(1)' }).click();
    await table().getByRole('row').nth(1).click();
    await detail().getByText('alert(2)').first().waitFor();
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toContain('⟨U+202E⟩');
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Edit' }).click();
    await field('Metadata').waitFor();
    expect(await page.locator('img[src=x]').count()).toBe(0);
  });
});

describe('the versions of a dataset', () => {
  it('are listed with tags, chosen, and compared', async () => {
    const id = await addDataset('versions', 3);
    const listed = await fetch(`${signedIn.runlake.url}/api/v1/examples?dataset=${id}&order=id`, {
      headers: { 'x-api-key': signedIn.runlake.apiKey },
    });
    const [first, second] = await listed.json();
    await client.updateExample({ id: first.id, dataset_id: id, outputs: { answer: script } });
    await client.deleteExample(second.id);
    await page.goto(`/datasets/${id}?tab=Versions`);
    const versions = page.getByRole('region', { name: 'Versions' }).getByRole('row');
    await eventually(() => versions.count()).toBe(4);
    const difference = page.getByRole('region', { name: 'Difference', exact: true });
    await difference.getByRole('region', { name: 'Removed' }).getByText(second.id).first().waitFor();
    await difference.getByText('removed:').first().waitFor();
    await expectAccessible(page);
    await versions.nth(2).getByRole('button', { name: 'Changes' }).click();
    const changed = difference.getByRole('region', { name: `Difference of ${first.id}` });
    await changed.getByText('alert(1)').waitFor();
    await eventually(() => changed.locator('del').count()).toBe(1);
    await expectAccessible(page);

    // Without a first version, another one is compared to the version before it.
    await page.goto(`/datasets/${id}?tab=Versions`);
    const newer = page.getByLabel('To version');
    await newer.selectOption({ index: 2 });
    await difference.getByRole('region', { name: 'Changed' }).getByText(first.id).first().waitFor();
    await newer.selectOption({ index: 3 });
    await difference.getByText('There is no version before this one.').waitFor();

    await versions.nth(3).getByRole('button', { name: 'Tag' }).click();
    await page.getByRole('textbox', { name: 'Tag' }).fill('latest');
    await page.getByRole('button', { name: 'Set' }).click();
    await eventually(() => page.getByRole('alert').textContent()).toContain('A tag must be neither');
    await page.getByRole('textbox', { name: 'Tag' }).fill('first');
    await page.getByRole('button', { name: 'Set' }).click();
    await versions.nth(3).getByText('first', { exact: true }).waitFor();

    await page.goto(`/datasets/${id}?version=first`);
    await eventually(rowCount).toBe(3);
    await page.getByText('Only the newest version can be changed.').waitFor();
    expect(await page.getByRole('button', { name: 'Add an example' }).count()).toBe(0);
    await page.getByLabel('Version').selectOption('');
    await eventually(rowCount).toBe(2);
  });
});

describe('the links of a dataset', () => {
  it('of the SDK opens it, and a public one opens it without a session', async () => {
    const id = await addDataset('shared', 3);
    // The SDK finds the workspace by a project.
    await client.createProject({ projectName: 'any' });
    const url = new URL(await client.getDatasetUrl({ datasetId: id }));
    await page.goto(url.pathname);
    await eventually(() => new URL(page.url()).pathname).toBe(`/datasets/${id}`);
    await page.getByRole('button', { name: 'Share' }).click();
    await page.getByRole('button', { name: 'Create a public link' }).click();
    const link = await page.getByRole('textbox', { name: 'Public link' }).inputValue();
    const stranger = await openContext(signedIn.browser, signedIn.runlake.url);
    const other = await stranger.newPage();
    watchPage(other);
    await other.goto(link);
    await other.getByRole('table', { name: 'Examples' }).getByRole('row').nth(1).click();
    await other
      .getByRole('region', { name: 'Example', exact: true })
      .getByText(/What is/)
      .waitFor();
    expect(await other.getByRole('button', { name: 'Edit' }).count()).toBe(0);
    await expectAccessible(other);
    await page.getByRole('button', { name: 'Stop sharing' }).click();
    await page.getByText('The dataset is not shared').waitFor();
    await other.reload();
    await other.getByRole('alert').waitFor();
    await stranger.close();
  });
});

describe('what is not there', () => {
  it('a dataset that does not exist, and an example that is not in the version', async () => {
    await page.goto('/datasets/00000000-0000-4000-8000-000000000000');
    await page.getByRole('alert').getByRole('heading', { name: 'Not found' }).waitFor();
    await expectAccessible(page);
    const id = await addDataset('short', 1);
    await page.goto(`/datasets/${id}?example=00000000-0000-4000-8000-000000000000`);
    await page.getByRole('alert').getByText('This version of the dataset has no example').waitFor();
  });

  it('an API that fails, and recovers', async () => {
    await page.route('**/api/v2/datasets*', (route) =>
      route.fulfill({ status: 400, json: { detail: 'The database is away.' } }),
    );
    await page.goto('/datasets');
    await eventually(() => page.getByRole('alert').textContent()).toContain('The database is away.');
    await expectAccessible(page);
    await page.unroute('**/api/v2/datasets*');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('region', { name: 'Datasets' }).waitFor();
  });

  it('a permission', async () => {
    const other = await openWithPermissions(signedIn, ['projects:read'], '/datasets');
    await other.getByRole('main').getByText('datasets:read').waitFor();
    await expectAccessible(other);
    const id = await addDataset('forbidden', 1);
    await other.goto(`/datasets/${id}`);
    await other.getByRole('main').getByText('datasets:read').waitFor();
    await other.context().close();
  });
});

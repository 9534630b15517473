import { beforeAll, describe, expect, it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { deferred } from '../infra/deferred.ts';
import {
  createKey,
  eventually,
  expectAccessible,
  loseResponse,
  openContext,
  openPages,
  openWithPermissions,
  signIn,
  startSignedIn,
} from './browser.ts';
import { buildTrace, sendRuns } from './send-traces.ts';

const signedIn = forSuite(() => startSignedIn());
beforeAll(async () => {
  const config = (key: string, feedback_config: object) =>
    ask('feedback-configs', { feedback_key: key, feedback_config });
  const categories = [
    { value: 0, label: 'wrong' },
    { value: 1, label: 'right' },
  ];
  await config('correct', { type: 'categorical', categories });
  await config('helpful', { type: 'continuous', min: 0, max: 10 });
  await config('better', { type: 'freeform' });
});
const page = openPages(signedIn);

const ask = (path: string, body?: unknown, apiKey = signedIn.runlake.apiKey) =>
  askRunlake({ url: signedIn.runlake.url, apiKey }, `/api/v1/${path}`, { body });

async function sendRun(name: string): Promise<string> {
  const runs = buildTrace('reviewed', Date.now() - 1000, {
    name,
    until: 100,
    inputs: { messages: [{ role: 'user', content: `Question of ${name}` }] },
    outputs: { role: 'assistant', content: `Answer of ${name}` },
  });
  await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, runs);
  return runs[0]?.id ?? '';
}

/** Creates a queue with a run of each name, in this order. */
async function createQueue(name: string, runNames: readonly string[], more: object = {}) {
  const rubric_items = [
    {
      feedback_key: 'correct',
      is_required: true,
      description: 'Compare with the records.',
      value_descriptions: { right: 'No mistake' },
    },
    { feedback_key: 'helpful' },
    { feedback_key: 'better' },
  ];
  const { id } = await ask('annotation-queues', {
    name,
    rubric_items,
    rubric_instructions: 'Be strict.',
    ...more,
  });
  const runIds: string[] = [];
  for (const each of runNames) {
    const runId = await sendRun(each);
    await ask(`annotation-queues/${id}/runs`, [runId]);
    runIds.push(runId);
  }
  return { queueId: id as string, runIds };
}

const heading = () => page.getByRole('region', { name: 'Run', exact: true }).getByRole('heading', { level: 2 }).first();
const counts = () => page.getByRole('status').filter({ hasText: 'to review' }).textContent();
const listFeedback = async (runId: string | undefined) => {
  const items: Record<string, unknown>[] = await ask(`feedback?run=${runId}`);
  return items
    .map(({ key, score, value, comment }) => ({ key, score, value, comment }))
    .sort((a, b) => (String(a.key) < String(b.key) ? -1 : 1));
};

describe('annotation queues', () => {
  it('are created on their screen, and take runs from the trace screen', async () => {
    const runId = await sendRun('to be queued');
    await page.goto('/queues');
    await page.getByText('There are no annotation queues').waitFor();
    await expectAccessible(page);
    await page.getByLabel('Name').fill('first <b>queue</b>');
    await page.getByLabel('Feedback keys').fill('correct, tone, correct');
    await page.getByLabel('Instructions').fill('Look at the tone.');
    await page.getByRole('button', { name: 'Create a queue' }).click();
    const row = page.getByRole('row').filter({ hasText: 'first <b>queue</b>' });
    await eventually(() => row.getByRole('cell').nth(1).textContent()).toBe('0');
    expect(await row.getByRole('cell').nth(3).textContent()).toBe('correct, tone');
    await page.goto(`/runs/${runId}`);
    await page.getByRole('button', { name: 'Annotation queues' }).click();
    await page.getByRole('button', { name: 'Add to first <b>queue</b>' }).click();
    await page.getByText('In the queue').waitFor();
    await expectAccessible(page);
    await page.getByRole('link', { name: 'first <b>queue</b>' }).click();
    await page.getByText('Question of to be queued').waitFor();
    await page.getByText('Look at the tone.').waitFor();
    await eventually(counts).toBe('1 to review, 0 with others, 0 done');
    await page.getByRole('link', { name: 'Queues' }).first().click();
    await eventually(() => row.getByRole('cell').nth(1).textContent()).toBe('1');
  });

  it('are created once, although the response to the first request is lost', async () => {
    await page.goto('/queues');
    await loseResponse(page, 'POST', /\/annotation-queues$/);
    await page.getByLabel('Name').fill('repeated');
    await page.getByRole('button', { name: 'Create a queue' }).click();
    await page.getByRole('alert').getByText('Runlake does not answer').waitFor();
    await page.getByRole('button', { name: 'Create a queue' }).click();
    await page.getByRole('link', { name: 'repeated' }).first().waitFor();
    expect(await ask('annotation-queues?name=repeated')).toHaveLength(1);
  });

  it('are reviewed by keyboard', async () => {
    const { queueId, runIds } = await createQueue('by keyboard', ['one', 'two', 'three']);
    await page.goto(`/queues/${queueId}`);
    await eventually(() => heading().textContent()).toBe('one');
    await page.getByText('Be strict.').waitFor();
    await page.getByText('No mistake').waitFor();
    await expectAccessible(page);
    await page.keyboard.press('?');
    const dialog = page.getByRole('dialog');
    for (const label of ['Done', 'Move to the end', 'Skip', 'Write a note', 'Choose a category, or write the score'])
      await dialog.getByText(label, { exact: true }).waitFor();
    await page.keyboard.press('Escape');
    // What is required is missing.
    await page.keyboard.press('d');
    await page.getByRole('alert').getByText('correct is required.').waitFor();
    await page.keyboard.press('2');
    await eventually(() => page.getByRole('radio', { name: 'right' }).isChecked()).toBe(true);
    await page.keyboard.press('1');
    await eventually(() => page.getByLabel('Score of helpful').inputValue()).toBe('1');
    await page.keyboard.type('2');
    await page.keyboard.press('Escape');
    await page.keyboard.press('d');
    await page.getByRole('alert').getByText('The score of helpful must be a number, 0 to 10.').waitFor();
    await page.keyboard.press('i');
    await page.keyboard.press('Backspace');
    await page.keyboard.type('.5');
    await page.keyboard.press('Escape');
    await page.keyboard.press('c');
    await page.keyboard.type('short');
    await page.keyboard.press('Escape');
    await page.keyboard.press('j');
    await page.keyboard.press('i');
    await page.keyboard.type('Cite the record.');
    await page.keyboard.press('Escape');
    await page.keyboard.press('n');
    await page.keyboard.type('Seen twice.');
    await page.keyboard.press('Escape');
    await page.keyboard.press('d');
    await eventually(() => heading().textContent()).toBe('two');
    expect(await listFeedback(runIds[0])).toEqual([
      { key: 'better', score: null, value: 'Cite the record.', comment: null },
      { key: 'correct', score: 1, value: 'right', comment: null },
      { key: 'helpful', score: 1.5, value: null, comment: 'short' },
      { key: 'note', score: null, value: null, comment: 'Seen twice.' },
    ]);
    await eventually(counts).toBe('2 to review, 0 with others, 1 done');
    // What was entered stays while the run is skipped.
    await page.keyboard.press('n');
    await page.keyboard.type('Later.');
    await page.keyboard.press('Escape');
    await page.keyboard.press('s');
    await eventually(() => heading().textContent()).toBe('three');
    await page.keyboard.press('p');
    await eventually(() => heading().textContent()).toBe('two');
    expect(await page.getByRole('textbox', { name: 'Note' }).inputValue()).toBe('Later.');
    await page.keyboard.press('e');
    await eventually(() => heading().textContent()).toBe('three');
    await page.goto(`/queues/${queueId}`);
    await eventually(() => heading().textContent()).toBe('three');
    await page.keyboard.press('1');
    await page.keyboard.press('d');
    await eventually(() => heading().textContent()).toBe('two');
    await page.keyboard.press('1');
    await page.keyboard.press('d');
    await page.getByText('Nothing is left to review').waitFor();
    await eventually(counts).toBe('0 to review, 0 with others, 3 done');
  });

  it('keep a note beside a criterion with its key', async () => {
    const { queueId, runIds } = await createQueue('noted', ['noted'], { rubric_items: [{ feedback_key: 'note' }] });
    await page.goto(`/queues/${queueId}`);
    await page.getByLabel('Score of note').fill('3');
    await page.getByRole('textbox', { name: 'Note', exact: true }).fill('Seen.');
    await page.getByRole('button', { name: 'Done' }).click();
    await page.getByText('Nothing is left to review').waitFor();
    const kept = await listFeedback(runIds[0]);
    expect(kept.map(({ score, comment }) => [score, comment])).toEqual(
      expect.arrayContaining([
        [3, null],
        [null, 'Seen.'],
      ]),
    );
  });

  it('keep an unsaved review while the reviewer looks at the trace', async () => {
    const { queueId } = await createQueue('Looked up', ['looked up']);
    await page.goto(`/queues/${queueId}`);
    await page.getByRole('radio', { name: 'right' }).check();
    await page.getByLabel('Note').fill('compare with the call above');
    await page.getByRole('link', { name: 'Trace', exact: true }).click();
    await page.getByRole('tree', { name: 'Runs' }).waitFor();
    await page.goBack();
    await eventually(() => page.getByLabel('Note').inputValue()).toBe('compare with the call above');
    expect(await page.getByRole('radio', { name: 'right' }).isChecked()).toBe(true);
  });

  it('do not leave a run while its review is being completed, and take no keys behind a dialog', async () => {
    const { queueId } = await createQueue('slow', ['first', 'second'], { rubric_items: [] });
    await page.goto(`/queues/${queueId}`);
    await eventually(() => heading().textContent()).toBe('first');
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('d');
    await page.keyboard.press('Escape');
    const { promise: held, resolve: release } = deferred();
    const sent: unknown[] = [];
    await page.route('**/annotation-queues/status/*', async (route) => {
      const { status } = route.request().postDataJSON() as { status: string | null };
      if (status !== 'in_progress') sent.push(status);
      if (status === 'completed') await held;
      await route.continue();
    });
    await page.keyboard.press('d');
    await eventually(() => sent).toEqual(['completed']);
    await page.keyboard.press('s');
    expect(await page.getByRole('button', { name: 'Skip' }).isDisabled()).toBe(true);
    expect(await heading().textContent()).toBe('first');
    release();
    await eventually(() => heading().textContent()).toBe('second');
    await eventually(counts).toBe('1 to review, 0 with others, 1 done');
    expect(sent).toEqual(['completed']);
  });

  it('show runs that are added while nothing is left', async () => {
    await page.clock.install();
    const { queueId } = await createQueue('refilled', []);
    await page.goto(`/queues/${queueId}`);
    await page.getByText('Nothing is left to review').waitFor();
    await ask(`annotation-queues/${queueId}/runs`, [await sendRun('late')]);
    // The numbers are read every ten seconds.
    await page.clock.fastForward('00:11');
    await eventually(counts).toBe('1 to review, 0 with others, 0 done');
    await eventually(() => heading().textContent()).toBe('late');
  });

  it('give two reviewers different runs', async () => {
    const { queueId } = await createQueue('of two', ['left', 'right']);
    await page.goto(`/queues/${queueId}`);
    await eventually(() => heading().textContent()).toBe('left');
    await eventually(async () => {
      const { items } = await ask(`platform/annotation-queues/${queueId}/items?status=needs_my_review`);
      return items[0].reserved_by.length;
    }).toBe(1);
    await ask('orgs/current/members', { email: 'second@example.com', full_name: 'Second' });
    const { key } = await createKey(signedIn.runlake, { description: 'second', user_email: 'second@example.com' });
    const context = await openContext(signedIn.browser, signedIn.runlake.url);
    const other = await context.newPage();
    await signIn(other, key, `/queues/${queueId}`);
    await other.getByText('Question of right').waitFor();
    await other.getByText('1 to review, 1 with others, 0 done').waitFor();
    await context.close();
    // Without reservations, the first one to complete a run wins.
    const open = await createQueue('without reservations', ['shared', 'own'], { enable_reservations: false });
    await page.goto(`/queues/${open.queueId}`);
    await eventually(() => heading().textContent()).toBe('shared');
    const { items } = await ask(`platform/annotation-queues/${open.queueId}/items?status=needs_my_review`);
    await ask(`annotation-queues/status/${items[0].id}`, { status: 'completed' }, key);
    await page.keyboard.press('1');
    await page.keyboard.press('d');
    await page.getByRole('alert').getByText('Other users review the run or have completed it.').waitFor();
    await eventually(() => heading().textContent()).toBe('own');
  });

  it('renew a long reservation seldom', async () => {
    const { queueId } = await createQueue('of weeks', ['reserved'], { reservation_minutes: 100_000 });
    let renewals = 0;
    page.on('request', (request) => {
      if (request.url().includes('/annotation-queues/status/')) renewals++;
    });
    await page.goto(`/queues/${queueId}`);
    await eventually(() => heading().textContent()).toBe('reserved');
    await eventually(() => renewals).toBe(1);
    // An interval that is too long for a timer is a millisecond.
    for (let round = 0; round < 20; round++) await ask(`annotation-queues/${queueId}`);
    expect(renewals).toBe(1);
  });

  it('show a thread, and say what is missing, that loading failed and which permission is missing', async () => {
    const turns = buildTrace('threads', Date.now() - 1000, {
      name: 'turn',
      until: 10,
      inputs: { text: 'Part of a thread' },
      metadata: { thread_id: 'a/b' },
    });
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, turns);
    const [{ id: projectId }] = await ask('sessions?name=threads');
    const { queueId } = await createQueue('of threads', []);
    const items = [{ thread_id: 'a/b', project_id: projectId }];
    const add = () => ask(`platform/annotation-queues/${queueId}/items`, { items });
    await eventually(() => add().then(() => 'added', String)).toBe('added');
    await page.goto(`/queues/${queueId}`);
    await page.getByRole('listitem', { name: 'Turn 1' }).getByText('Part of a thread').waitFor();
    await expectAccessible(page);
    await page.keyboard.press('d');
    await page.getByText('Nothing is left to review').waitFor();
    await expectAccessible(page);
    await page.route('**/api/v1/annotation-queues?*', (route) =>
      route.fulfill({ status: 400, json: { detail: 'Broken.' } }),
    );
    await page.goto('/queues');
    await page.getByRole('alert').getByText('Broken.').waitFor();
    await page.goto('/queues/00000000-0000-4000-8000-000000000000');
    await page.getByRole('alert').getByRole('heading', { name: 'Not found' }).waitFor();
    const { queueId: readOnly } = await createQueue('read only', ['only read']);
    const permissions = ['runs:read', 'annotation-queues:read'];
    const reader = await openWithPermissions(signedIn, permissions, `/queues/${readOnly}`);
    await reader.getByText('Question of only read').waitFor();
    await reader.getByText('annotation-queues:update').waitFor();
    await expectAccessible(reader);
    await reader.context().close();
  });
});

import { describe, expect, it } from 'vitest';
import { readTurn } from '../../web/src/screens/threads/turn-messages.ts';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { eventually, expectAccessible, openPages, openWithPermissions, startSignedIn } from './browser.ts';
import { buildTrace, type RunTemplate, sendAgentTraces, sendRuns } from './send-traces.ts';

const user = (content: string) => ({ role: 'user', content });
const assistant = (content: string) => ({ role: 'assistant', content });

describe('a turn', () => {
  const textsOf = (messages: ReturnType<typeof readTurn>['input']) =>
    messages?.map(
      ({ role, parts }) => `${role}: ${parts.map((part) => (part.kind === 'text' ? part.text : '')).join()}`,
    );

  it('is what the turn adds to the messages that clients send again', () => {
    const turn = readTurn(
      { messages: [user('one'), assistant('two'), user('three')] },
      { messages: [user('one'), assistant('two'), user('three'), assistant('four')] },
    );
    expect(textsOf(turn.earlier)).toEqual(['user: one', 'assistant: two']);
    expect(textsOf(turn.input)).toEqual(['user: three']);
    expect(textsOf(turn.output)).toEqual(['assistant: four']);
  });

  it('keeps all messages if none of them is new', () => {
    const messages = [user('one'), assistant('two')];
    const turn = readTurn({ messages }, { messages });
    expect(turn.earlier).toEqual([]);
    expect(textsOf(turn.input)).toEqual(['user: one', 'assistant: two']);
    expect(textsOf(turn.output)).toEqual(['user: one', 'assistant: two']);
  });

  it('takes the only text of a value as a message, and no other value', () => {
    const turn = readTurn({ question: 'Where?' }, { rows: 3, text: 'Here.' });
    expect(textsOf(turn.input)).toEqual(['input: Where?']);
    expect(turn.output).toBeUndefined();
  });
});

describe('the threads screen', () => {
  const signedIn = forSuite(() => startSignedIn(sendAgentTraces));
  const page = openPages(signedIn);
  const table = () => page.getByRole('table', { name: 'Threads' });
  const turns = () => page.getByRole('listitem', { name: /^Turn \d+$/ });
  const figure = async (label: string) =>
    page
      .locator('.figures div')
      .filter({ has: page.getByText(label, { exact: true }) })
      .locator('dd')
      .textContent();
  const openThreads = async (project: string) => {
    await page.goto('/projects');
    await page.getByRole('link', { name: project, exact: true }).click();
    await page.getByRole('link', { name: 'Threads' }).click();
  };
  const sendTurns = (project: string, threadId: string, templates: readonly Omit<RunTemplate, 'name'>[]) => {
    const start = Date.now() - 1000 * templates.length;
    const traces = templates.map((template, index) =>
      buildTrace(project, start + 1000 * index, { name: 'turn', metadata: { thread_id: threadId }, ...template }),
    );
    return sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, traces.flat()).then(() =>
      traces.map(([root]) => root?.id ?? ''),
    );
  };

  it('lists the threads of a project with figures, the one with the newest turn first', async () => {
    await openThreads('support-agent');
    await table().waitFor();
    await eventually(() => figure('Threads')).toBe('12');
    expect(await figure('Turns')).toBe('250');
    expect(await figure('Errors')).toBe('11.2 %');
    const first = table().getByRole('row').nth(1);
    await expectAccessible(page);
    expect(await first.getByRole('cell').allTextContents()).toEqual([
      'thread-0',
      '21',
      expect.stringContaining('Which invoices of March'),
      expect.stringContaining('Here is what I found'),
      expect.stringMatching(/\d\d:\d\d:\d\d$/),
      '0',
      expect.stringMatching(/ s$/),
      expect.stringMatching(/^[\d.K]+$/),
      expect.stringContaining('$'),
    ]);
    const filter = page.getByRole('combobox', { name: 'Filter' });
    await filter.fill('eq(thread_id, "thread-3")');
    await filter.press('Enter');
    await eventually(() => figure('Threads')).toBe('1');
    await page.reload();
    await eventually(() => figure('Threads')).toBe('1');
    await table().getByRole('row').nth(1).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'thread-3' }).waitFor();
    await page.getByRole('link', { name: 'Threads' }).click();
    expect(await filter.inputValue()).toBe('eq(thread_id, "thread-3")');
  });

  it('shows a thread as a conversation, the newest turn at the end, with a link to each trace', async () => {
    const [, second] = await sendTurns('chat', 'conversation', [
      { until: 500, inputs: { messages: [user('Hello?')] }, outputs: { messages: [user('Hello?'), assistant('Hi!')] } },
      {
        until: 900,
        inputs: { messages: [user('Hello?'), assistant('Hi!'), user('And now?')] },
        outputs: assistant('Now I know.'),
      },
      { until: 900, inputs: { question: 'Once more?' }, error: 'ToolError: no more' },
    ]);
    await openThreads('chat');
    await table().getByText('Hello?').waitFor();
    await table().getByRole('link', { name: 'conversation' }).click();
    await eventually(() => turns().count()).toBe(3);
    await turns().nth(1).getByText('Now I know.').waitFor();
    await turns().nth(2).getByText('ToolError: no more').waitFor();
    expect(await turns().nth(0).getByText('Hello?').count()).toBe(1);
    expect(await turns().nth(1).getByText('Hi!').count()).toBe(0);
    await turns().nth(1).getByRole('button', { name: 'Show 2 earlier messages' }).click();
    await turns().nth(1).getByText('Hi!').waitFor();
    expect(await figure('Turns')).toBe('3');
    expect(await figure('Errors')).toBe('1');
    await expectAccessible(page);
    await page.keyboard.press('j');
    await page.keyboard.press('k');
    await eventually(() => page.evaluate(() => document.activeElement?.getAttribute('aria-label'))).toBe('Turn 2');
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/runs/${second}`);
    await page.getByRole('tab', { name: 'Metadata' }).click();
    await page.getByRole('link', { name: 'conversation' }).click();
    await eventually(() => turns().count()).toBe(3);
  });

  it('loads earlier turns on request, a page of turns in one request, and numbers them', async () => {
    await openThreads('support-agent');
    const reads: string[] = [];
    page.on('request', (request) => {
      if (/\/api\/v1\/runs\/|"INPUTS"/.test(request.url() + request.postData())) reads.push(request.url());
    });
    await table().getByRole('link', { name: 'thread-0' }).click();
    await eventually(() => turns().getByText('Here is what I found').count()).toBe(20);
    expect(reads.length).toBe(1);
    expect(await turns().first().getAttribute('aria-label')).toBe('Turn 2');
    await eventually(() =>
      turns()
        .last()
        .evaluate((turn) => turn.getBoundingClientRect().bottom <= window.innerHeight),
    ).toBe(true);
    await page.getByRole('button', { name: 'Show earlier turns' }).click();
    await eventually(() => turns().getByText('Here is what I found').count()).toBe(21);
    expect(reads.length).toBe(2);
    expect(await turns().first().getAttribute('aria-label')).toBe('Turn 1');
  });

  it('grows while it is watched, and takes feedback on a turn', async () => {
    await sendTurns('growing', 'live', [
      { until: 100, inputs: { messages: [user('Start?')] }, outputs: assistant('Yes.') },
    ]);
    await openThreads('growing');
    await table().getByRole('link', { name: 'live' }).click();
    await turns().getByText('Yes.').waitFor();
    const [begun = ''] = await sendTurns('growing', 'live', [{ inputs: { messages: [user('Still there?')] } }]);
    await turns().nth(1).getByText('Still there?').waitFor();
    await turns().nth(1).getByText('The turn has not ended.').waitFor();
    const body = { end_time: new Date().toISOString(), outputs: assistant('Of course.') };
    await askRunlake(signedIn.runlake, `/runs/${begun}`, { method: 'PATCH', body });
    await turns().nth(1).getByText('Of course.').waitFor();
    await eventually(() => figure('Turns')).toBe('2');
    await turns().nth(1).getByRole('button', { name: 'Feedback' }).click();
    await page.getByRole('textbox', { name: 'Key' }).fill('correct');
    await page.getByRole('textbox', { name: 'Score' }).fill('0.5');
    await page.getByRole('button', { name: 'Add' }).click();
    await turns().nth(1).getByRole('button', { name: 'Feedback: correct 0.5' }).waitFor();
    await eventually(() => figure('Feedback')).toBe('correct 0.5');
    await expectAccessible(page);
  });

  it('opens threads with any id, and shows hostile values as text', async () => {
    const ids = ['..', 'a/b?c=d#e', '<img src=x onerror="alert(1)"> \\', '12\u202e'];
    for (const id of ids)
      await sendTurns('hostile', id, [
        { until: 10, inputs: { messages: [user(`<script>alert(2)</script> ${id}`)] }, outputs: assistant(id) },
      ]);
    for (const [index, id] of ids.entries()) {
      await openThreads('hostile');
      await eventually(() => table().getByRole('row').count()).toBe(ids.length + 1);
      await table()
        .getByRole('link')
        .nth(ids.length - 1 - index)
        .click();
      await eventually(() => turns().count()).toBe(1);
      await turns().getByText('<script>alert(2)</script>').waitFor();
      expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe(id.replace('\u202e', '⟨U+202E⟩'));
    }
    await page.reload();
    await eventually(() => turns().count()).toBe(1);
  });

  it('says that there are no threads, that loading failed, and which permission is missing', async () => {
    await sendRuns(
      signedIn.runlake.url,
      signedIn.runlake.apiKey,
      buildTrace('no-threads', Date.now() - 1000, { name: 'alone', until: 10 }),
    );
    await openThreads('no-threads');
    await page.getByText('No threads match').waitFor();
    await expectAccessible(page);
    const address = page.url();
    await page.goto(`${address}&thread=absent`);
    await page.getByText('This thread has no turns').waitFor();
    await page.route('**/api/v2/threads/query', (route) => route.fulfill({ status: 400, json: { detail: 'Broken.' } }));
    await page.goto(address);
    await page.getByRole('alert').getByText('Broken.').waitFor();
    await page.unroute('**/api/v2/threads/query');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByText('No threads match').waitFor();
    const [, broken] = await sendTurns('broken', 'values', [{ until: 1 }, { until: 2, outputs: assistant('There.') }]);
    const isValues = (url: URL) => url.pathname === '/api/v2/runs/query';
    await page.route(isValues, (route) =>
      route.request().postData()?.includes('"INPUTS"')
        ? route.fulfill({ status: 400, json: { detail: 'No values.' } })
        : route.continue(),
    );
    await page.goto(`/runs/${broken}`);
    await page.getByRole('tab', { name: 'Metadata' }).click();
    await page.getByRole('link', { name: 'values' }).click();
    await turns().first().getByRole('alert').getByText('No values.').waitFor();
    await turns().nth(1).getByText('This turn did not load.').waitFor();
    await page.unroute(isValues);
    await page.getByRole('button', { name: 'Try again' }).click();
    await turns().nth(1).getByText('There.').waitFor();
    const other = await openWithPermissions(signedIn, ['projects:read'], new URL(address).pathname);
    await other.getByText('runs:read').waitFor();
    await expectAccessible(other);
    await other.context().close();
  });
});

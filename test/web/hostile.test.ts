import { beforeAll, describe, expect, it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { eventually, expectAccessible, openPages, startSignedIn } from './browser.ts';
import { buildTrace, type SentRun, sendRuns } from './send-traces.ts';

const script = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
const bidi = '\u202etxt.exe\u200b';
const hostile = `${script}${bidi}`;
/** A megabyte that ends with what must be text, too. */
const long = `${'lorem ipsum '.repeat(87_400)}${hostile}`;

const signedIn = forSuite(() => startSignedIn());
let trace: readonly SentRun[];

const post = (path: string, body: object) => askRunlake(signedIn.runlake, path, { body });

beforeAll(async () => {
  const values = { [hostile]: long, list: [hostile, { [hostile]: hostile }] };
  trace = buildTrace(hostile, Date.now() - 60_000, {
    name: hostile,
    until: 50,
    inputs: { messages: [{ role: hostile, content: long, name: hostile }], ...values },
    outputs: { ...values, usage_metadata: { input_tokens: 1, output_tokens: 2, total_tokens: 3 } },
    error: long,
    tags: [hostile, hostile.repeat(20)],
    metadata: {
      [hostile]: hostile,
      thread_id: hostile,
      user_id: hostile,
      ls_model_name: hostile,
      ls_provider: hostile,
    },
    children: [
      { name: hostile.repeat(5), run_type: 'llm', from: 1, until: 40, inputs: { prompt: hostile }, outputs: values },
    ],
  }).map((run) => ({ ...run, events: [{ name: hostile, time: new Date().toISOString(), [hostile]: hostile }] }));
  await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, trace);
  await post('/feedback', { run_id: trace[0]?.id, key: 'hostile', value: hostile, comment: long.slice(-9000) });
  await post('/api-key', { description: hostile });
  await post('/orgs/current/members', { email: 'ada@example.com', full_name: hostile });
});
const page = openPages(signedIn);

/** Fails if a value became an element, ran, or turned the direction of the text. */
async function expectOnlyText(): Promise<void> {
  expect(await page.locator('img[src="x"]').count()).toBe(0);
  const text = await page.evaluate(() => document.body.innerText);
  expect(text).not.toContain('\u202e');
  expect(text).not.toContain('\u200b');
  expect(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)).toBeLessThanOrEqual(0);
}
async function findProject(): Promise<string> {
  const [project] = await askRunlake(signedIn.runlake, '/sessions?limit=1');
  return project.id;
}
const found = () => page.getByRole('main').getByText('alert(1)').first();

describe('hostile values of clients', () => {
  it.each([
    ['projects', '/projects'],
    ['usage by project', '/usage?group=project'],
    ['usage by user', '/usage?group=user'],
    ['keys', '/settings?tab=Keys'],
    ['members', '/settings?tab=Members'],
    ['audit log', '/settings?tab=Audit%20log'],
  ])('are text in %s', async (_name, path) => {
    await page.goto(path);
    await (path.endsWith('user') ? page.getByRole('heading', { name: 'Usage' }) : found()).waitFor();
    await expectOnlyText();
  });

  it.each(['__proto__', 'constructor'])('choose nothing in an address: %s', async (name) => {
    const screens = [
      ['/usage', { range: name, group: name, show: name }, 'Last 31 days, by day'],
      [`/projects/${await findProject()}`, { range: name, runs: name }, 'Last 24 hours'],
      ['/prompts', { kind: name }, 'There are no prompts yet'],
    ] as const;
    for (const [path, search, shown] of screens) {
      await page.goto(`${path}?${new URLSearchParams(search)}`);
      await page.getByText(shown).first().waitFor({ state: 'attached' });
      expect(await page.getByRole('alert').count()).toBe(0);
      await expectOnlyText();
    }
  });

  it('are text in the table of runs, its filters and its columns', async () => {
    await page.goto('/projects');
    await found().click();
    await page.getByRole('table', { name: 'Runs' }).waitFor();
    await page.getByRole('button', { name: 'All runs' }).click();
    await eventually(() => page.getByRole('row').count()).toBe(3);
    await page.getByRole('button', { name: 'Columns' }).click();
    for (const box of await page.getByRole('checkbox').all()) await box.check();
    await expectOnlyText();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Name ▾' }).click();
    await expectOnlyText();
    await page.evaluate(() => localStorage.removeItem('runlake.trace-columns'));
  });

  it('are text in each tab of a run, in each form of its values', async () => {
    await page.goto(`/runs/${trace[0]?.id}`);
    await page.getByRole('tree', { name: 'Runs' }).waitFor();
    await found().waitFor();
    await expectOnlyText();
    for (const form of ['JSON', 'Text']) {
      for (const button of await page.getByRole('button', { name: form, exact: true }).all()) await button.click();
      await expectOnlyText();
    }
    for (const tab of await page.getByRole('tab').all()) {
      await tab.click();
      await page.getByRole('tabpanel').waitFor();
      await expectOnlyText();
    }
    await page.goto(`/runs/${trace[1]?.id}`);
    await page.getByRole('treeitem', { selected: true }).waitFor();
    await expectOnlyText();
  });

  it('are text in a conversation, also the names of what every object has', async () => {
    const roles = ['constructor', '__proto__', 'toString', 'visually-hidden'];
    const messages: unknown[] = roles.map((role) => ({ role, content: `says ${role}` }));
    const [run] = buildTrace('roles', Date.now() - 60_000, {
      name: 'roles',
      until: 50,
      inputs: { messages: [...messages, ['hasOwnProperty', 'says nothing']] },
    });
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, run ? [run] : []);
    await page.goto(`/runs/${run?.id}`);
    const shown = page.getByRole('region', { name: 'Input' }).getByRole('listitem');
    await eventually(() => shown.count()).toBe(5);
    for (const [at, role] of roles.entries()) expect(await shown.nth(at).innerText()).toBe(`${role}\nsays ${role}`);
    // An element that is visually hidden is a pixel wide.
    expect((await shown.nth(3).boundingBox())?.width).toBeGreaterThan(100);
    expect(await shown.nth(4).innerText()).toBe('hasOwnProperty\nsays nothing');
    await expectOnlyText();
  });

  it('are shown as they are spelt, with the joiners of their script', async () => {
    const name = 'می\u200cخواهم क्\u200cष 👩\u200d🚀 pay\u200cpal \u200cمن';
    const [run] = buildTrace('spelling', Date.now() - 60_000, { name, until: 50 });
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, run ? [run] : []);
    await page.goto(`/runs/${run?.id}`);
    await page.getByRole('tree', { name: 'Runs' }).waitFor();
    const heading = await page.getByRole('heading', { level: 1 }).textContent();
    expect(heading).toBe('می\u200cخواهم क्\u200cष 👩\u200d🚀 pay⟨U+200C⟩pal ⟨U+200C⟩من');
  });

  it('are shown in part if a conversation has many messages, parts or calls', async () => {
    const list = <T>(name: string, build: (text: string) => T) =>
      Array.from({ length: 3_000 }, (_, at) => build(`${name} ${at}.`));
    const [run] = buildTrace('long', Date.now() - 60_000, {
      name: 'long',
      until: 50,
      inputs: { messages: list('message', (content) => ({ role: 'user', content })) },
      outputs: {
        role: 'assistant',
        content: list('part', (text) => ({ type: 'text', text })),
        tool_calls: list('call', (name) => ({ name, args: {} })),
      },
    });
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, run ? [run] : []);
    await page.goto(`/runs/${run?.id}`);
    const input = page.getByRole('region', { name: 'Input' });
    await input.getByText('message 0.').waitFor();
    for (const each of ['message 49.', 'message 2950.', 'message 2999.'])
      await input.getByText(each).waitFor({ timeout: 1000 });
    expect(await input.getByText(/^message/).count()).toBe(100);
    await expectAccessible(page);
    await input.getByRole('button', { name: '2900 more' }).click();
    await input.getByText('message 1049.').waitFor();
    expect(await input.getByText(/^message/).count()).toBe(1_100);
    await input.getByRole('button', { name: '1900 more' }).click();
    await input.getByRole('button', { name: '900 more' }).click();
    await eventually(() => input.getByText(/^message/).count()).toBe(3_000);
    expect(await input.getByRole('button', { name: 'more' }).count()).toBe(0);
    const output = page.getByRole('region', { name: 'Output' });
    expect(await output.getByText(/^part/).count()).toBe(100);
    expect(await output.getByText(/^call \d/).count()).toBe(100);
  });

  it.each([3_000, 4_900])('are shown in part if they are nested %i levels deep', async (levels) => {
    const thread_id = `deep ${levels}`;
    const [run] = buildTrace('deep', Date.now() - 60_000, {
      name: 'deep',
      until: 50,
      inputs: { deep: 'NESTED' },
      metadata: { thread_id },
    });
    const [other] = buildTrace('deep', Date.now() - 50_000, {
      name: 'other',
      until: 50,
      inputs: { question: 'Is the other turn shown?' },
      metadata: { thread_id },
    });
    // JSON.stringify cannot format such values, either.
    const nested = `${'[{"deep":'.repeat(levels / 2)}"the end"${'}]'.repeat(levels / 2)}`;
    const body = JSON.stringify({ post: [run, other], patch: [] }).replace('"NESTED"', nested);
    const headers = { 'x-api-key': signedIn.runlake.apiKey, 'content-type': 'application/json' };
    const sent = await fetch(`${signedIn.runlake.url}/runs/batch`, { method: 'POST', headers, body });
    expect(sent.status).toBe(202);
    await page.goto(`/runs/${run?.id}`);
    const input = page.getByRole('region', { name: 'Input' });
    for (const form of ['JSON', 'Text']) await input.getByRole('button', { name: form, exact: true }).click();
    await input.locator('pre').getByText('"deep": [').waitFor();
    await page.goto(`/runs/${run?.id}?tab=Raw`);
    await page.getByRole('tabpanel').getByText('the end').waitFor();
    const [{ id }] = await askRunlake(signedIn.runlake, '/sessions?name=deep');
    await page.goto(`/projects/${id}/threads?${new URLSearchParams({ thread: thread_id })}`);
    await page.getByText('Is the other turn shown?').waitFor();
  });

  it('can be typed to delete a deployment with such a name', async () => {
    const name = ` agent${bidi} ${'n'.repeat(490)}`;
    const deployment = { source: 'internal_source', source_config: {}, source_revision_config: {}, secrets: [] };
    const { id } = await post('/v2/deployments', { name, ...deployment });
    await page.goto(`/agents/${id}?tab=Settings`);
    const form = page.getByRole('form', { name: 'Delete the deployment' });
    const shown = (await form.locator('strong').innerText()).trim();
    await form.getByRole('textbox').fill(shown);
    await form.getByRole('button', { name: 'Delete the deployment' }).click();
    await page.getByRole('heading', { name: 'Agents', level: 1 }).waitFor();
    await expectOnlyText();
  });

  it('are text in an export', async () => {
    await page.goto(`/exports/new?${new URLSearchParams({ filter: hostile, columns: hostile })}`);
    await page.getByText('No destinations').waitFor();
    await expectOnlyText();
    await page.goto(`/signin?${new URLSearchParams({ error: hostile })}`);
    await page.getByRole('navigation', { name: 'Screens' }).waitFor();
    await expectOnlyText();
  });
});

import { Client } from 'langsmith';
import { describe, expect, it } from 'vitest';
import { readPrompt } from '../../web/src/screens/prompts/manifest.ts';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { eventually, expectAccessible, openPages, openWithPermissions, startSignedIn } from './browser.ts';
import { buildChatPrompt } from './send-prompts.ts';

const script = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
const bidi = 'safe\u202etxt.exe\u200b';

const signedIn = forSuite(() => startSignedIn());
const client = forSuite(
  () =>
    new Client({
      apiUrl: signedIn.runlake.url,
      apiKey: signedIn.runlake.apiKey,
      autoBatchTracing: false,
      disablePromptCache: true,
    }),
);
const page = openPages(signedIn);

const commits = () => page.getByRole('navigation', { name: 'Commits' }).getByRole('listitem');
const currentCommit = () => page.locator('.commit-list li[aria-current="true"]');
const commit = () => page.getByRole('region', { name: 'Commit' });
const file = (content: string) => ({ type: 'file' as const, content });

async function readNewest(name: string): Promise<string> {
  for await (const { commit_hash } of client.listCommits(name)) return commit_hash;
  throw new Error(`${name} has no commits`);
}

describe('the list of prompts', () => {
  it('says that there are none, and finds those that there are by kind and text', async () => {
    await page.goto('/prompts');
    await page.getByText('There are no prompts yet').waitFor();
    await expectAccessible(page);
    await client.pushPrompt('triage', { object: buildChatPrompt('Be brief.'), description: 'Sorts mails' });
    await client.createPrompt('empty', { description: 'Nothing yet' });
    await client.pushSkill('mail', { files: { 'SKILL.md': file('Write mails.') } });
    await page.reload();
    const row = page.getByRole('row').filter({ hasText: 'triage' });
    await row.getByText('Sorts mails').waitFor();
    await eventually(() => page.getByRole('row').count()).toBe(4);
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Skills' }).click();
    await eventually(() => page.getByRole('row').count()).toBe(2);
    await page.reload();
    await page.getByRole('link', { name: 'mail' }).waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('sorts');
    await page.getByText('Nothing matches').waitFor();
    await page.getByRole('button', { name: 'All' }).click();
    await eventually(() => page.getByRole('row').count()).toBe(2);
    await page.getByRole('searchbox').fill('');
    await page.getByRole('link', { name: 'empty' }).click();
    await page.getByText('There are no commits yet').waitFor();
    await expectAccessible(page);
    await page.goto('/prompts');
    await page.getByRole('button', { name: 'Public', exact: true }).click();
    await page.getByText('RUNLAKE_SHARE_PUBLIC_PROMPTS=true').waitFor();
  });
});

describe('a prompt', () => {
  it('shows its latest commit as a conversation with the model, and opens the link of the SDK', async () => {
    const url = await client.pushPrompt('support', {
      object: buildChatPrompt('You are the support agent of {company}.', { model: 'gpt-4o-mini', temperature: 0.5 }),
      commitTags: ['production'],
    });
    await page.goto(new URL(url).pathname + new URL(url).search);
    await commit().getByText('You are the support agent of {company}.').waitFor();
    const messages = commit().getByRole('region', { name: 'Messages' }).getByRole('listitem');
    await eventually(() => messages.count()).toBe(4);
    expect(await messages.nth(0).textContent()).toMatch(/^system/);
    expect(await messages.nth(1).textContent()).toContain('{history}');
    expect(await messages.nth(2).textContent()).toMatch(/^user/);
    await commit().getByRole('region', { name: 'Model' }).getByText('ChatOpenAI').waitFor();
    await commit().getByRole('region', { name: 'Model' }).getByText('gpt-4o-mini').waitFor();
    await commit().getByText('production', { exact: true }).waitFor();
    await expectAccessible(page);
    await page.getByRole('tab', { name: 'JSON' }).click();
    await commit().getByText('RunnableSequence').first().waitFor();
    await page.getByRole('tab', { name: 'Changes' }).click();
    await commit().getByText('This is the first commit').waitFor();
    await expectAccessible(page);
  });

  it('shows the difference between commits, by keyboard too, and what has no messages', async () => {
    const text = (tone: string) =>
      `You are ${tone}.\n${Array.from({ length: 40 }, (_, n) => `Rule ${n}: keep it.`).join('\n')}`;
    await client.pushPrompt('tones', { object: buildChatPrompt(text('brief')) });
    await client.pushPrompt('tones', { object: buildChatPrompt(text('brief and kind')), commitDescription: 'kinder' });
    await client.pushPrompt('tones', { object: { anything: [1, 2] } });
    await page.goto('/prompts/tones');
    await commit().getByText('no messages that are known here').waitFor();
    await eventually(() => commits().count()).toBe(3);
    await page.keyboard.press('j');
    await commit().getByText('You are brief and kind.').waitFor();
    await eventually(() => currentCommit().textContent()).toContain('kinder');
    await page.getByRole('tab', { name: 'Changes' }).click();
    const difference = page.getByRole('region', { name: 'Difference of Messages' });
    await eventually(() => difference.locator('ins').count()).toBe(1);
    expect(await difference.locator('ins').textContent()).toContain('You are brief and kind.');
    expect(await difference.locator('del').textContent()).toContain('You are brief.');
    expect(await difference.locator('ins strong').allTextContents()).toEqual([' and kind']);
    await expectAccessible(page);
    await difference.getByRole('button', { name: /Show \d+ equal lines/ }).click();
    await difference.getByText('Rule 20: keep it.').waitFor();
    const newest = await readNewest('tones');
    await page.getByRole('combobox', { name: 'Compared to' }).selectOption(newest);
    await eventually(() => new URL(page.url()).searchParams.get('base')).toBe(newest.slice(0, 8));
    await eventually(() => difference.locator('del').count()).toBe(0);
    await page.reload();
    await difference.getByText('You are brief and kind.').waitFor();
    await page.keyboard.press('k');
    await eventually(() => currentCommit().textContent()).toContain(newest.slice(0, 8));
  });

  it('shows that the parent of an old commit is not loaded yet', async () => {
    await client.createPrompt('long-history');
    const hashes: string[] = [];
    for (let number = 0; number < 103; number++) {
      const body = { manifest: { template: `text ${number}` } };
      hashes.push((await askRunlake(signedIn.runlake, '/commits/-/long-history', { body })).commit.commit_hash);
    }
    await page.goto(`/prompts/long-history/${hashes[1]?.slice(0, 8)}?tab=Changes`);
    await commit().getByText('The parent is not in the list yet').waitFor();
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Show older commits' }).click();
    await page.getByRole('region', { name: 'Difference of Messages' }).locator('del', { hasText: 'text 0' }).waitFor();
    await page.goto(`/prompts/long-history/${hashes[0]?.slice(0, 8)}?tab=Changes`);
    await page.getByRole('button', { name: 'Show older commits' }).click();
    await commit().getByText('This is the first commit').waitFor();
  });

  it('sets, moves and removes tags, and says what the API refuses', async () => {
    await client.pushPrompt('tagged', { object: { template: 'one' } });
    await client.pushPrompt('tagged', { object: { template: 'two' }, commitTags: 'stable' });
    await page.goto('/prompts/tagged');
    await commits().nth(1).getByRole('link').click();
    await commit().getByText('one').waitFor();
    const set = async (tag: string) => {
      await page.getByRole('textbox', { name: 'Tag' }).fill(tag);
      await page.getByRole('button', { name: 'Set' }).click();
    };
    await page.getByRole('button', { name: 'Tag', exact: true }).click();
    await set('a/b');
    await page.getByRole('alert').waitFor();
    await expectAccessible(page);
    await set('stable');
    await commits().nth(1).getByText('stable').waitFor();
    await eventually(() => commits().nth(0).getByText('stable').count()).toBe(0);
    expect((await client.pullPromptCommit('tagged:stable')).manifest).toEqual({ template: 'one' });
    await commit().getByRole('button', { name: 'Remove the tag stable' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await eventually(() => page.getByText('stable', { exact: true }).count()).toBe(0);
  });

  it('keeps a commit that cannot be read again', async () => {
    await page.clock.install();
    await client.pushPrompt('kept', { object: { template: 'still here' } });
    await page.goto('/prompts/kept');
    await commit().getByText('still here').waitFor();
    await page.route('**/api/v1/commits/-/kept/*', (route) =>
      route.fulfill({ status: 400, json: { detail: 'The database is away.' } }),
    );
    await page.clock.fastForward('00:30');
    await page.evaluate(() => window.dispatchEvent(new Event('visibilitychange')));
    await page.getByRole('alert').getByText('The database is away.').waitFor();
    expect(await commit().getByText('still here').count()).toBe(1);
  });

  it('shows the files of an agent, and the difference of each', async () => {
    await client.pushAgent('assistant', {
      files: {
        'AGENTS.md': file('Answer mails.'),
        'old.md': file('Old.'),
        'skills/mail': { type: 'skill', repo_handle: 'mail' },
      },
    });
    await client.pushAgent('assistant', { files: { 'AGENTS.md': file('Answer mails soon.'), 'old.md': null } });
    await page.goto('/prompts/assistant');
    await commit().getByText('Answer mails soon.').waitFor();
    await commit().getByRole('link', { name: 'mail' }).waitFor();
    await expectAccessible(page);
    await page.getByRole('tab', { name: 'Changes' }).click();
    await page.getByRole('region', { name: 'Difference of AGENTS.md' }).locator('ins', { hasText: 'soon' }).waitFor();
    await page.getByRole('region', { name: 'Difference of old.md' }).locator('del').waitFor();
    expect(await page.getByRole('region', { name: /^Difference of skills/ }).count()).toBe(0);
  });

  it('shows hostile values as text', async () => {
    await client.pushPrompt('hostile', {
      object: buildChatPrompt(`${script} ${bidi}`),
      description: script,
      readme: script,
      tags: [script],
    });
    await client.pushPrompt('hostile', {
      object: buildChatPrompt(`${script} ${bidi} `.repeat(20_000), { [script]: script }),
      commitDescription: `${script}${bidi}`,
    });
    await page.goto('/prompts');
    await page.getByRole('link', { name: 'hostile' }).click();
    await commit()
      .getByText(/Show all .* characters/)
      .first()
      .waitFor();
    for (const tab of ['JSON', 'Changes']) await page.getByRole('tab', { name: tab }).click();
    await page.getByRole('region', { name: 'Difference of Messages' }).waitFor();
    expect(await page.getByRole('main').textContent()).toContain('⟨U+202E⟩');
    expect(await page.locator('img[src=x]').count()).toBe(0);
    await expectAccessible(page);
  });
});

describe('the difference of long texts', () => {
  it('is shown in part, as removed and added lines if comparing takes too long', async () => {
    const lines = (word: string, count: number) =>
      Array.from({ length: count }, (_, n) => `${word} ${(n * 7919) % 10_007}`).join('\n');
    await client.pushPrompt('long', { object: { template: lines('one', 3000) } });
    await client.pushPrompt('long', { object: { template: lines('two', 60_000) } });
    await page.goto('/prompts/long?tab=Changes');
    const difference = page.getByRole('region', { name: 'Difference of Messages' });
    await difference.getByRole('button', { name: /Show more of \d+ lines/ }).waitFor();
    expect(await difference.locator('.diff-line').count()).toBe(1000);
  });
});

describe('what is not there', () => {
  it('a prompt and a commit that do not exist, and an API that fails', async () => {
    await page.goto('/prompts/nothing-like-it');
    await page.getByRole('alert').getByRole('heading', { name: 'Not found' }).waitFor();
    await client.pushPrompt('short', { object: { template: 'one' } });
    await page.goto('/prompts/short/00000000');
    await page.getByRole('alert').getByRole('heading', { name: 'Not found' }).waitFor();
    await expectAccessible(page);
    await page.route('**/api/v1/repos?*', (route) =>
      route.fulfill({ status: 400, json: { detail: 'The database is away.' } }),
    );
    await page.goto('/prompts');
    await eventually(() => page.getByRole('alert').textContent()).toContain('The database is away.');
    await page.unroute('**/api/v1/repos?*');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('region', { name: 'Prompts' }).waitFor();
  });

  it('a permission', async () => {
    await client.pushPrompt('read-only', { object: { template: 'one' }, commitTags: 'kept' });
    const stranger = await openWithPermissions(signedIn, ['projects:read'], '/prompts');
    await stranger.getByRole('main').getByText('prompts:read').waitFor();
    await expectAccessible(stranger);
    await stranger.context().close();
    const reader = await openWithPermissions(signedIn, ['prompts:read'], '/prompts/read-only');
    await reader.getByRole('region', { name: 'Commit' }).getByText('kept').waitFor();
    expect(await reader.getByRole('button', { name: /Remove|Tag/ }).count()).toBe(0);
    await reader.context().close();
  });
});

describe('a manifest', () => {
  it('is read with a model that is bound to tools, a schema, and messages that are no templates', () => {
    const sequence = buildChatPrompt('Be {tone}.', { model: 'm' }) as { kwargs: Record<string, unknown> };
    const tools = [{ type: 'function', function: { name: 'search' } }];
    const bound = { id: ['langchain', 'RunnableBinding'], kwargs: { bound: sequence.kwargs.last, kwargs: { tools } } };
    const first = {
      id: ['langchain_core', 'prompts', 'structured', 'StructuredPrompt'],
      kwargs: {
        input_variables: ['tone'],
        schema_: { type: 'object' },
        messages: [
          { lc: 1, type: 'constructor', id: ['x', 'SystemMessage'], kwargs: { content: 'Fixed.' } },
          { unknown: true },
        ],
      },
    };
    const read = readPrompt({ ...sequence, kwargs: { first, last: bound } });
    expect(read).toMatchObject({
      variables: ['tone'],
      schema: { type: 'object' },
      model: { name: 'ChatOpenAI', settings: { model: 'm', tools } },
      messages: [
        { role: 'system', parts: [{ kind: 'text', text: 'Fixed.' }] },
        { role: 'message', parts: [{ kind: 'other', value: { unknown: true } }] },
      ],
    });
    for (const value of [null, 1, 'text', [], {}, { kwargs: 1 }, { kwargs: { messages: [] } }, { messages: {} }])
      expect(readPrompt(value).messages).toBeUndefined();
  });
});

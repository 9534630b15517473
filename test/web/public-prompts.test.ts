/** Prompts that another workspace of the installation published. */
import { Client } from 'langsmith';
import { expect, it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { eventually, expectAccessible, openPages, startSignedIn } from './browser.ts';
import { buildChatPrompt } from './send-prompts.ts';

const script = '<img src=x onerror="alert(1)">';
const file = (content: string) => ({ type: 'file' as const, content });

const signedIn = forSuite(() =>
  startSignedIn(
    async (started) => {
      const { url, apiKey } = started;
      const [own] = await askRunlake(started, '/workspaces');
      const writers = { display_name: 'Writers', tenant_handle: 'writers' };
      const { id } = await askRunlake(started, '/workspaces', { body: writers });
      await askRunlake(started, '/settings/handle', { body: { tenant_handle: 'readers' }, workspaceId: own.id });
      const connect = (workspaceId: string) =>
        new Client({ apiUrl: url, apiKey, webUrl: url, workspaceId, disablePromptCache: true });
      [publisher, reader] = [connect(id), connect(own.id)];
    },
    { environment: { RUNLAKE_SHARE_PUBLIC_PROMPTS: 'true' } },
  ),
);
/** Clients of the workspace that publishes, and of that of the session. */
let publisher: Client;
let reader: Client;
const page = openPages(signedIn);

const commit = () => page.getByRole('region', { name: 'Commit' });
const linkOf = (identifier: string) =>
  (reader as unknown as { _getPromptUrl(identifier: string): Promise<string> })._getPromptUrl(identifier);
const showPublic = async () => {
  await page.goto('/prompts');
  await page.getByRole('button', { name: 'Public', exact: true }).click();
};

it('are listed with the handle of their workspace, beside those of the own one', async () => {
  await showPublic();
  await page.getByText('There are no public prompts').waitFor();
  await expectAccessible(page);
  await publisher.pushPrompt('poem', {
    object: buildChatPrompt('Write a poem.'),
    description: `Poems ${script}\u202e`,
    isPublic: true,
  });
  await publisher.pushPrompt('draft', { object: buildChatPrompt('Not yet.') });
  await publisher.pushSkill('rhyme', { files: { 'SKILL.md': file('Rhyme.') }, isPublic: true });
  await reader.pushPrompt('letter', { object: buildChatPrompt('Write a letter.'), isPublic: true });
  await page.reload();
  const names = () => page.getByRole('region', { name: 'Prompts' }).getByRole('link').allTextContents();
  await eventually(names).toEqual(['readers/letter', 'writers/rhyme', 'writers/poem']);
  await page.getByText('⟨U+202E⟩').waitFor();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Skills' }).click();
  await eventually(names).toEqual(['writers/rhyme']);
  await page.getByRole('link', { name: 'writers/rhyme' }).click();
  await commit().getByText('Rhyme.').waitFor();
  await page.getByRole('link', { name: 'Public prompts' }).click();
  await page.getByRole('link', { name: 'readers/letter' }).click();
  await eventually(() => new URL(page.url()).pathname).toBe('/prompts/letter');
  await page.getByRole('link', { name: 'Prompts' }).last().click();
  await eventually(names).toEqual(['letter']);
});

it('show their commits and differences, and nothing that changes them', async () => {
  await publisher.pushPrompt('greeting', { object: buildChatPrompt('Say hello.'), isPublic: true });
  await publisher.pushPrompt('greeting', { object: buildChatPrompt('Say hello kindly.'), commitTags: ['production'] });
  await reader.pushPrompt('greeting', { object: buildChatPrompt('This one is mine.') });
  await showPublic();
  await page.getByRole('link', { name: 'writers/greeting' }).click();
  await page.getByRole('heading', { name: 'writers/greeting' }).waitFor();
  await commit().getByText('Say hello kindly.').waitFor();
  await commit().getByText('production', { exact: true }).waitFor();
  await page.getByText('read-only').waitFor();
  await expectAccessible(page);
  const changing = page.getByRole('main').getByRole('button', { name: /Tag|Remove|Delete|Edit|Set/ });
  expect(await changing.count()).toBe(0);
  await page.getByRole('tab', { name: 'Changes' }).click();
  const difference = page.getByRole('region', { name: 'Difference of Messages' });
  await eventually(() => difference.locator('ins strong').allTextContents()).toEqual([' kindly']);
  await page.keyboard.press('j');
  await commit().getByText('This is the first commit').waitFor();
  await page.reload();
  await commit().getByText('This is the first commit').waitFor();
  expect(await changing.count()).toBe(0);
  // The own prompt of the same name is another one, which can be changed.
  await page.goto('/prompts/greeting');
  await commit().getByText('This one is mine.').waitFor();
  await commit().getByRole('button', { name: 'Tag', exact: true }).waitFor();
});

it('open from the link of the SDK, and only while they are public', async () => {
  await publisher.pushPrompt('linked', { object: buildChatPrompt('First.'), isPublic: true });
  await publisher.pushPrompt('linked', { object: buildChatPrompt('Second.') });
  const hashes: string[] = [];
  for await (const { commit_hash } of reader.listCommits('writers/linked')) hashes.push(commit_hash);
  const latest = await linkOf('writers/linked');
  expect(new URL(latest).pathname).toBe('/hub/writers/linked');
  await page.goto(latest);
  await commit().getByText('Second.').waitFor();
  await page.goto(await linkOf(`writers/linked:${hashes[1]}`));
  await commit().getByText('First.').waitFor();
  await publisher.updatePrompt('linked', { isPublic: false });
  await page.reload();
  await page.getByRole('alert').getByRole('heading', { name: 'Not found' }).waitFor();
  await expectAccessible(page);
});

import { Client } from 'pg';
import type { BrowserContext, Page, Route } from 'playwright-core';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { createKey, eventually, expectAccessible, openContext, signIn, startSignedIn, watchPage } from './browser.ts';
import { buildAgentTrace, sendRuns } from './send-traces.ts';

const signedIn = forSuite(() =>
  startSignedIn(({ url, apiKey }) => sendRuns(url, apiKey, buildAgentTrace('agent', Date.now() - 60_000, 1))),
);
let context: BrowserContext;
let first: Page;
let second: Page;
beforeEach(async () => {
  context = await openContext(signedIn.browser, signedIn.runlake.url);
  [first, second] = [await context.newPage(), await context.newPage()];
  await signIn(first, signedIn.runlake.apiKey, '/projects');
  await second.goto('/settings');
  await second.getByRole('heading', { name: 'Settings' }).waitFor();
});
afterEach(() => context?.close());

/** Ends every session at once, as time does. */
async function expireSessions(): Promise<void> {
  const database = new Client({ connectionString: signedIn.runlake.stores().databaseUrl });
  await database.connect();
  await database.query("UPDATE sign_in_sessions SET expires_at = now() - interval '1 second'");
  await database.end();
  // The process remembers for a few seconds that it has accepted a session.
  await eventually(async () => (await context.request.get('/api/v1/api-key')).status()).toBe(401);
}

describe('two tabs', () => {
  it('show the sign-in when one of them signs out, without a click in the other', async () => {
    watchPage(second);
    await first.getByRole('button', { name: 'Sign out' }).click();
    await first.getByLabel('API key').waitFor();
    await second.getByText('This page needs a session').waitFor();
    expect(await second.getByRole('row').count()).toBe(0);
    // A sign-in in one of them leads the other back to its page.
    await first.getByLabel('API key').fill(signedIn.runlake.apiKey);
    await first.getByRole('button', { name: 'Sign in' }).click();
    await first.getByRole('navigation', { name: 'Screens' }).waitFor();
    await second.getByRole('heading', { name: 'Settings' }).waitFor();
  });

  it('have the session of the key with which one of them signs in', async () => {
    const { key } = await createKey(signedIn.runlake, { description: 'another', permissions: ['api-keys:read'] });
    await second.getByRole('button', { name: 'Create a key' }).waitFor();
    await first.getByRole('button', { name: 'Sign out' }).click();
    await first.getByLabel('API key').fill(key);
    await first.getByRole('button', { name: 'Sign in' }).click();
    await first.getByRole('navigation', { name: 'Screens' }).waitFor();
    await second.getByRole('row').filter({ hasText: 'another' }).waitFor();
    expect(await second.getByRole('button', { name: 'Create a key' }).count()).toBe(0);
    await first.getByRole('button', { name: 'Sign out' }).click();
    await first.getByLabel('API key').fill(signedIn.runlake.apiKey);
    await first.getByRole('button', { name: 'Sign in' }).click();
    // The tab changes something with the CSRF token of the new session.
    await second.getByLabel('Description').fill('of the second tab');
    await second.getByRole('button', { name: 'Create a key' }).click();
    await second.getByRole('region', { name: 'The new key' }).waitFor();
  });

  it('show a key that the other one has created after a reload', async () => {
    await first.goto('/settings');
    await first.getByLabel('Description').fill('of the first tab');
    await first.getByRole('button', { name: 'Create a key' }).click();
    const key = await first.getByRole('region', { name: 'The new key' }).textContent();
    await second.reload();
    await second.getByRole('row').filter({ hasText: 'of the first tab' }).waitFor();
    expect(await second.content()).not.toContain(key);
  });
});

describe('a sign-out that fails', () => {
  it('says so, and can be tried again', async () => {
    const refuse = (route: Route) =>
      route.request().method() === 'DELETE'
        ? route.fulfill({ status: 503, json: { detail: 'The database is away.' } })
        : route.continue();
    await first.route('**/api/v1/session', refuse);
    await first.getByRole('button', { name: 'Sign out' }).click();
    await first.getByRole('alert').getByText('The database is away.').waitFor();
    await expectAccessible(first);
    await first.unroute('**/api/v1/session', refuse);
    await first.getByRole('button', { name: 'Sign out' }).click();
    await first.getByLabel('API key').waitFor();
  });
});

describe('a session that expires while a screen is open', () => {
  it('leads a screen that polls to the sign-in, and back to the same address', async () => {
    await first.getByRole('link', { name: 'agent', exact: true }).click();
    await first.getByRole('button', { name: 'Live' }).click();
    await eventually(() => first.url()).toContain('live=true');
    const address = first.url();
    await first.getByRole('table', { name: 'Runs' }).waitFor();
    await expireSessions();
    await first.getByText('This page needs a session').waitFor();
    await first.getByLabel('API key').fill(signedIn.runlake.apiKey);
    await first.getByRole('button', { name: 'Sign in' }).click();
    await first.getByRole('table', { name: 'Runs' }).waitFor();
    expect(first.url()).toBe(address);
  });

  it('changes nothing, and asks to sign in', async () => {
    await expireSessions();
    await second.getByLabel('Description').fill('too late');
    await second.getByRole('button', { name: 'Create a key' }).click();
    await second.getByText('This page needs a session').waitFor();
    await second.getByLabel('API key').fill(signedIn.runlake.apiKey);
    await second.getByRole('button', { name: 'Sign in' }).click();
    await second.getByRole('region', { name: 'Keys' }).waitFor();
    expect(await second.getByRole('row').filter({ hasText: 'too late' }).count()).toBe(0);
  });
});

describe('a sign-in through OpenID Connect', () => {
  /** Leads the browser back as the provider and Runlake do: with a session, or with an error. */
  const answer = async (error?: string) => {
    await context.route('**/api/v1/info', async (route) => {
      const info = await (await route.fetch()).json();
      await route.fulfill({ json: { ...info, instance_flags: { ...info.instance_flags, openid_connect: true } } });
    });
    await context.route('**/api/v1/session/oidc', async (route) => {
      if (error) return route.fulfill({ status: 302, headers: { location: `/signin?error=${error}` } });
      const data = { api_key: signedIn.runlake.apiKey };
      await context.request.post('/api/v1/session', { data });
      await route.fulfill({ status: 302, headers: { location: '/' } });
    });
  };
  const followLink = () => first.getByRole('link', { name: 'Sign in with your organisation' }).click();

  it('leads back to the page, and gives the session to the other tabs', async () => {
    await answer();
    await first.getByRole('link', { name: 'agent', exact: true }).click();
    await first.getByRole('table', { name: 'Runs' }).waitFor();
    const address = first.url();
    await second.getByRole('button', { name: 'Create a key' }).waitFor();
    await expireSessions();
    await first.getByRole('button', { name: 'Refresh' }).click();
    await first.getByText('This page needs a session').waitFor();
    // The sign-in screen read the configuration before.
    await first.reload();
    await followLink();
    await first.getByRole('table', { name: 'Runs' }).waitFor();
    expect(first.url()).toBe(address);
    await second.getByLabel('Description').fill('of the second tab');
    await second.getByRole('button', { name: 'Create a key' }).click();
    await second.getByRole('region', { name: 'The new key' }).waitFor();
  });

  it('that fails keeps the page for the next attempt', async () => {
    await answer('OIDC_SIGN_IN_EXPIRED');
    await first.getByRole('button', { name: 'Sign out' }).click();
    await first.goto('/settings?tab=Members');
    await followLink();
    await first.getByRole('alert').getByText('took too long').waitFor();
    await first.getByLabel('API key').fill(signedIn.runlake.apiKey);
    await first.getByRole('button', { name: 'Sign in' }).click();
    await first.getByRole('tab', { name: 'Members', selected: true }).waitFor();
  });
});

describe('a key with several workspaces', () => {
  const menuOf = (page: Page) => page.getByRole('combobox', { name: 'Workspace' });
  const shownIn = (page: Page) => menuOf(page).locator('option:checked').textContent();

  /** Each tab sees a little later what others have stored. */
  const readStored = (page: Page) => page.evaluate(() => localStorage.getItem('runlake.workspace'));

  let own: string | null;
  beforeAll(async () => {
    const { id } = await askRunlake(signedIn.runlake, '/workspaces', { body: { display_name: 'Beta' } });
    await askRunlake(signedIn.runlake, '/sessions', { body: { name: 'of beta' }, workspaceId: id });
  });
  beforeEach(async () => {
    for (const page of [first, second]) {
      await page.reload();
      await menuOf(page).waitFor();
    }
    own = await shownIn(first);
  });

  it.each([
    ['the list of projects', () => first],
    ['another screen', () => second],
  ])('shows the projects of the workspace that is chosen in %s', async (_name, getPage) => {
    const page = getPage();
    watchPage(page);
    await menuOf(page).selectOption('Beta');
    await page.getByRole('link', { name: 'of beta' }).waitFor();
    expect(await shownIn(page)).toBe('Beta');
    expect(await page.getByRole('link', { name: 'agent', exact: true }).count()).toBe(0);
    await menuOf(page).selectOption({ label: own ?? '' });
    await page.getByRole('link', { name: 'agent', exact: true }).waitFor();
    expect(await shownIn(page)).toBe(own);
    expect(await page.getByRole('link', { name: 'of beta' }).count()).toBe(0);
  });

  it('keeps the workspace of a tab when another tab chooses one, which new tabs show if it was used last', async () => {
    await menuOf(first).selectOption('Beta');
    await first.getByRole('link', { name: 'of beta' }).waitFor();
    await second.getByRole('link', { name: 'Projects' }).click();
    await second.getByRole('link', { name: 'agent', exact: true }).waitFor();
    expect(await shownIn(second)).toBe(own);
    await second.getByRole('link', { name: 'Settings' }).click();
    await second.getByRole('tab', { name: 'Workspaces' }).click();
    await second
      .getByRole('row')
      .filter({ hasText: 'shown' })
      .filter({ hasText: own ?? '' })
      .waitFor();
    await second.reload();
    await menuOf(second).waitFor();
    expect(await shownIn(second)).toBe(own);
    const last = await readStored(second);
    await first.getByRole('heading', { name: 'Projects' }).click();
    await eventually(() => readStored(second)).not.toBe(last);
    const third = await context.newPage();
    await third.goto('/projects');
    await third.getByRole('link', { name: 'of beta' }).waitFor();
    expect(await shownIn(third)).toBe('Beta');
  });

  it('opens a link in a new tab in the workspace of its tab when another tab has chosen one', async () => {
    await second.getByRole('link', { name: 'Projects' }).click();
    const link = second.getByRole('link', { name: 'agent', exact: true });
    await link.waitFor();
    await menuOf(first).selectOption('Beta');
    await first.getByRole('link', { name: 'of beta' }).waitFor();
    const beta = await readStored(first);
    await eventually(() => readStored(second)).toBe(beta);
    await second.keyboard.down('Control');
    await eventually(() => readStored(first)).not.toBe(beta);
    const [third] = await Promise.all([context.waitForEvent('page'), link.click()]);
    await second.keyboard.up('Control');
    await third.getByRole('table', { name: 'Runs' }).waitFor();
    expect(await shownIn(third)).toBe(own);
    expect(await shownIn(first)).toBe('Beta');
  });

  it('keeps the workspace of each tab when the session expires and one of them signs in', async () => {
    await menuOf(first).selectOption('Beta');
    await first.getByRole('link', { name: 'of beta' }).click();
    await first.getByText('No runs match').waitFor();
    const address = first.url();
    await second.getByRole('link', { name: 'Projects' }).click();
    await second.getByRole('link', { name: 'agent', exact: true }).click();
    await second.getByRole('table', { name: 'Runs' }).waitFor();
    await expireSessions();
    await first.getByRole('button', { name: 'Refresh' }).click();
    await first.getByText('This page needs a session').waitFor();
    await first.getByLabel('API key').fill(signedIn.runlake.apiKey);
    await first.getByRole('button', { name: 'Sign in' }).click();
    await first.getByText('No runs match').waitFor();
    expect(first.url()).toBe(address);
    expect(await shownIn(first)).toBe('Beta');
    await second.getByRole('button', { name: 'Refresh' }).click();
    await second.getByRole('table', { name: 'Runs' }).waitFor();
    expect(await shownIn(second)).toBe(own);
  });

  it('shows another workspace if the key of the next session has no access to the last one', async () => {
    const { key } = await createKey(signedIn.runlake, { description: 'of one workspace' });
    await menuOf(first).selectOption('Beta');
    await first.getByRole('link', { name: 'of beta' }).waitFor();
    await expireSessions();
    await first.getByRole('link', { name: 'Datasets' }).click();
    await first.getByText('This page needs a session').waitFor();
    await first.getByLabel('API key').fill(key);
    await first.getByRole('button', { name: 'Sign in' }).click();
    await first.getByText('There are no datasets yet').waitFor();
    expect(await menuOf(first).count()).toBe(0);
  });

  it('shows another workspace if the stored one does not exist', async () => {
    const gone = '6a1f4c7e-0000-4000-8000-000000000000';
    await first.evaluate((id) => localStorage.setItem('runlake.workspace', id), gone);
    const third = await context.newPage();
    await third.goto('/projects');
    await third.getByRole('link', { name: 'agent', exact: true }).waitFor();
    expect(await shownIn(third)).toBe(own);
    expect(await readStored(third)).not.toBe(gone);
    await first.getByRole('button', { name: 'Sign out' }).click();
    await first.getByLabel('API key').waitFor();
    await eventually(() => readStored(first)).toBeNull();
  });
});

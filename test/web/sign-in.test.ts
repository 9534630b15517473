import { describe, expect, it } from 'vitest';
import { forSuite } from '../for-suite.ts';
import { startRunlake } from '../runlake-process.ts';
import {
  createKey,
  expectAccessible,
  openContext,
  openWithPermissions,
  signIn,
  startBrowser,
  watchPage,
} from './browser.ts';
import { buildAgentTrace, sendRuns } from './send-traces.ts';

const runlake = forSuite(() => startRunlake());
const browser = forSuite(() => startBrowser());

describe('sign-in', () => {
  it('refuses a wrong key with the words of the API, and stores no key', async () => {
    const context = await openContext(browser, runlake.url);
    const page = await context.newPage();
    watchPage(page);
    await page.goto('/');
    await page.getByLabel('API key').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
    expect(await page.getByRole('alert').textContent()).toMatch(/key/i);
    await expectAccessible(page);
    await signIn(page, runlake.apiKey);
    const stored = await page.evaluate(() =>
      JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]),
    );
    expect(stored).not.toContain(runlake.apiKey);
    expect(stored).not.toContain('runlake_session');
    await context.close();
  });

  it('offers OpenID Connect where it is configured, and says why it failed', async () => {
    const context = await openContext(browser, runlake.url);
    const page = await context.newPage();
    await page.goto('/signin');
    const link = page.getByRole('link', { name: 'Sign in with your organisation' });
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    expect(await link.count()).toBe(0);
    await page.route('**/api/v1/info', async (route) => {
      const info = await (await route.fetch()).json();
      await route.fulfill({ json: { ...info, instance_flags: { ...info.instance_flags, openid_connect: true } } });
    });
    await page.goto('/signin?error=OIDC_SIGN_IN_EXPIRED');
    await link.waitFor();
    expect(await page.getByRole('alert').textContent()).toContain('took too long');
    await expectAccessible(page);
    await link.click();
    expect(new URL(page.url()).pathname).toBe('/api/v1/session/oidc');
    expect(await page.locator('body').textContent()).toContain('OIDC_NOT_CONFIGURED');
    await context.close();
  });

  it('shows the lines for a first trace on an empty installation, and opens the trace when it arrives', async () => {
    const context = await openContext(browser, runlake.url);
    const page = await context.newPage();
    watchPage(page);
    await signIn(page, runlake.apiKey);
    await page.getByRole('heading', { name: 'Send the first trace' }).waitFor();
    await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Projects' }).click();
    await page.waitForURL('**/projects');
    await page.getByRole('button', { name: 'Create a key for these lines' }).click();
    await page.getByText('It is shown only now').waitFor();
    const lines = await page.getByRole('region', { name: 'JavaScript lines' }).textContent();
    const key = /LANGSMITH_API_KEY='([^']+)'/.exec(lines ?? '')?.[1] ?? '';
    expect(lines).toContain(`LANGSMITH_ENDPOINT=${runlake.url}`);
    // The key stays in the lines after another screen was shown in between.
    await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Datasets' }).click();
    await page.waitForURL('**/datasets');
    await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Projects' }).click();
    await page.getByText('It is shown only now').waitFor();
    expect(await page.getByRole('region', { name: 'JavaScript lines' }).textContent()).toBe(lines);
    await page.getByRole('tab', { name: 'JavaScript' }).press('ArrowRight');
    expect(await page.getByRole('region', { name: 'Python lines' }).textContent()).toContain('from langsmith import');
    await page.getByRole('tab', { name: 'OTLP' }).click();
    expect(await page.getByRole('region', { name: 'OTLP lines' }).textContent()).toContain(key);
    await expectAccessible(page);
    await sendRuns(runlake.url, key, buildAgentTrace('first', Date.now() - 5000, 0));
    await page.getByRole('tree', { name: 'Runs' }).waitFor();
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe('triage agent');
    // The list that was empty must not lead back to the trace.
    const projects = page.getByRole('region', { name: 'Projects' });
    await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Projects' }).click();
    await projects.waitFor();
    await page.goBack();
    await page.getByRole('tree', { name: 'Runs' }).waitFor();
    await page.getByRole('link', { name: 'Runlake', exact: true }).click();
    await projects.waitFor();
    await context.close();
  });

  it('leads to the sign-in when the key is revoked, and back to the page afterwards', async () => {
    const context = await openContext(browser, runlake.url);
    const page = await context.newPage();
    const { id, key } = await createKey(runlake, { description: 'to revoke' });
    await signIn(page, key, '/projects');
    await page.getByRole('link', { name: 'first' }).click();
    await page.getByRole('table', { name: 'Runs' }).waitFor();
    const revoked = await fetch(`${runlake.url}/api/v1/api-key/${id}`, {
      method: 'DELETE',
      headers: { 'x-api-key': runlake.apiKey },
    });
    expect(revoked.ok).toBe(true);
    const address = new URL(page.url()).pathname;
    await page.getByRole('button', { name: 'Refresh' }).click();
    await page.getByText('This page needs a session').waitFor();
    await page.getByLabel('API key').fill(runlake.apiKey);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('table', { name: 'Runs' }).waitFor();
    expect(new URL(page.url()).pathname).toBe(address);
    await context.close();
  });

  it('does not follow an address of another origin after the sign-in', async () => {
    const context = await openContext(browser, runlake.url);
    const page = await context.newPage();
    await signIn(page, runlake.apiKey, '/signin?to=//other.example/x');
    expect(new URL(page.url()).origin).toBe(new URL(runlake.url).origin);
    await context.close();
  });

  it('names the permission that is missing', async () => {
    const page = await openWithPermissions({ runlake, browser }, ['projects:read'], '/usage');
    await page.getByText('No permission').waitFor();
    expect(await page.getByRole('main').textContent()).toContain('organization:read');
    await expectAccessible(page);
    await page.getByRole('link', { name: 'Projects' }).click();
    await page.getByRole('link', { name: 'first' }).click();
    await page.getByText('runs:read').waitFor();
    await page.context().close();
  });

  it('names the permission that is missing on the first screen', async () => {
    const page = await openWithPermissions({ runlake, browser }, ['runs:write']);
    await page.getByRole('main').getByText('projects:read').waitFor();
    await page.context().close();
  });
});

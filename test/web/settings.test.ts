import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { RunlakeProcess } from '../runlake-process.ts';
import { eventually, expectAccessible, type SignedInBrowser, startSignedIn } from './browser.ts';

describe('the settings screen', () => {
  let signedIn: SignedInBrowser;
  let runlake: RunlakeProcess;
  let page: Page;
  let problems: string[];
  beforeAll(async () => {
    signedIn = await startSignedIn();
    ({ runlake } = signedIn);
  });
  afterAll(() => signedIn?.close());
  beforeEach(async () => {
    ({ page, problems } = await signedIn.openPage());
    await page.goto('/settings');
  });
  const statusOf = async (key: string) =>
    (await fetch(`${runlake.url}/api/v1/sessions`, { headers: { 'x-api-key': key } })).status;

  it('creates a key that is shown once, and revokes it after a question', async () => {
    await page.getByLabel('Description').fill('robot <b>1</b>');
    await page.getByLabel('Lifetime').selectOption({ label: 'Expires in 30 days' });
    await page.getByLabel('Read only').check();
    await page.getByRole('button', { name: 'Create a key' }).click();
    const key = (await page.getByRole('region', { name: 'The new key' }).textContent()) ?? '';
    expect(await statusOf(key)).toBe(200);
    const row = page.getByRole('row').filter({ hasText: 'robot <b>1</b>' });
    await row.getByText('Read only').waitFor();
    await expectAccessible(page);
    await page.reload();
    await row.waitFor();
    expect(await page.getByRole('main').textContent()).not.toContain(key);
    await row.getByRole('button', { name: /^Revoke/ }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    expect(await statusOf(key)).toBe(200);
    await row.getByRole('button', { name: /^Revoke/ }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await eventually(() => row.count()).toBe(0);
    await eventually(() => statusOf(key)).toBe(401);
    expect(problems).toEqual([]);
  });

  it('adds and removes members', async () => {
    await page.getByRole('tab', { name: 'Members' }).click();
    await page.getByLabel('Email').fill('ada@example.com');
    await page.getByLabel('Name').fill('Ada');
    await page.getByRole('button', { name: 'Add a member' }).click();
    const row = page.getByRole('row').filter({ hasText: 'ada@example.com' });
    await row.waitFor();
    await expectAccessible(page);
    await row.getByRole('button', { name: 'Remove ada@example.com' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await eventually(() => row.count()).toBe(0);
    expect(problems).toEqual([]);
  });

  it('lists who changed what', async () => {
    await page.getByRole('tab', { name: 'Audit log' }).click();
    await page.getByRole('row').filter({ hasText: 'api_key.create' }).first().waitFor();
    await expectAccessible(page);
    await page.getByLabel('Action').fill('member');
    await page.getByRole('button', { name: 'Filter' }).click();
    await eventually(() => page.getByRole('row').filter({ hasText: 'api_key.create' }).count()).toBe(0);
    await page.getByRole('row').filter({ hasText: 'ada@example.com' }).first().waitFor();
    expect(problems).toEqual([]);
  });
});

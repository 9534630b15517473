import { beforeEach, describe, expect, it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { eventually, expectAccessible, openPages, startSignedIn } from './browser.ts';

describe('the settings screen', () => {
  const signedIn = forSuite(() =>
    startSignedIn(undefined, {
      environment: {
        RUNLAKE_RETENTION_SHORTLIVED_DAYS: '7',
        RUNLAKE_RETENTION_LONGLIVED_DAYS: '400',
      },
    }),
  );
  const page = openPages(signedIn);
  beforeEach(async () => {
    await page.goto('/settings');
  });
  const statusOf = async (key: string) =>
    (await fetch(`${signedIn.runlake.url}/api/v1/sessions`, { headers: { 'x-api-key': key } })).status;

  it('creates a key that is shown once, and revokes it after a question', async () => {
    await page.getByLabel('Description').fill('robot <b>1</b>');
    await page.getByLabel('Lifetime').selectOption({ label: 'Expires in 30 days' });
    await page.getByLabel('Read only').check();
    // The second click of a double click must not create a key that nobody has seen.
    await page.getByRole('button', { name: 'Create a key' }).dblclick();
    const key = (await page.getByRole('region', { name: 'The new key' }).textContent()) ?? '';
    expect(await statusOf(key)).toBe(200);
    const row = page.getByRole('row').filter({ hasText: 'robot <b>1</b>' });
    await row.getByText('Read only').waitFor();
    await expectAccessible(page);
    await page.reload();
    await row.waitFor();
    expect(await row.count()).toBe(1);
    expect(await page.getByRole('main').textContent()).not.toContain(key);
    // Enter that is pressed too long does not confirm.
    await row.getByRole('button', { name: /^Revoke/ }).press('Enter');
    await page.keyboard.press('Enter');
    await eventually(() => page.getByRole('dialog').count()).toBe(0);
    expect(await statusOf(key)).toBe(200);
    await row.getByRole('button', { name: /^Revoke/ }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await eventually(() => row.count()).toBe(0);
    await eventually(() => statusOf(key)).toBe(401);
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
  });

  const ask = (path: string, body?: object) => askRunlake(signedIn.runlake, path, { body });

  it('creates, renames and deletes workspaces, the last after the name is typed', async () => {
    await page.getByRole('tab', { name: 'Workspaces' }).click();
    const workspaces = page.getByRole('region', { name: 'Workspaces' });
    await workspaces.getByText('shown').waitFor();
    const name = 'staging <b>';
    await page.getByLabel('Name', { exact: true }).fill(name);
    await page.getByRole('button', { name: 'Create a workspace' }).click();
    await page.getByRole('button', { name: `Rename ${name}` }).click();
    await page.getByLabel(`New name of ${name}`).fill('trial <i>');
    await page.keyboard.press('Enter');
    const row = workspaces.getByRole('row').filter({ hasText: 'trial <i>' });
    await row.waitFor();
    await expectAccessible(page);
    // The menu of workspaces has the same list. On a phone it is part of the navigation.
    const menu = page.getByRole('combobox', { name: 'Workspace' });
    const size = page.viewportSize()!;
    await page.setViewportSize({ width: 390, height: 844 });
    expect(await menu.isVisible()).toBe(false);
    await page.getByRole('button', { name: 'Navigation' }).click();
    await expectAccessible(page);
    await menu.selectOption('trial <i>');
    await page.waitForURL('**/projects');
    await eventually(() => menu.isVisible()).toBe(false);
    await page.setViewportSize(size);
    await menu.waitFor();
    await page.getByRole('link', { name: 'Settings' }).click();
    await page.getByRole('tab', { name: 'Workspaces' }).click();
    await row.getByText('shown').waitFor();
    await row.getByRole('button', { name: 'Delete trial <i>' }).click();
    const dialog = page.getByRole('dialog');
    await expectAccessible(page);
    expect(await dialog.getByRole('button', { name: 'Delete' }).isDisabled()).toBe(true);
    await dialog.getByRole('textbox').fill('trial');
    expect(await dialog.getByRole('button', { name: 'Delete' }).isDisabled()).toBe(true);
    await dialog.getByRole('textbox').fill('trial <i>');
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await eventually(() => row.count()).toBe(0);
    const left: { display_name: string }[] = await ask('/workspaces');
    expect(left).toHaveLength(1);
    // The screens show another workspace; the last one of the organization stays.
    await workspaces.getByText('shown').waitFor();
    const last = left[0]?.display_name ?? '';
    await page.getByRole('button', { name: `Delete ${last}` }).click();
    await dialog.getByRole('textbox').fill(last);
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('alert').waitFor();
    expect(await ask('/workspaces')).toHaveLength(1);
  });

  it('shows and changes the retention of projects', async () => {
    const [one, two] = [await ask('/sessions', { name: 'kept' }), await ask('/sessions', { name: 'short' })];
    const read = async ({ id }: { id: string }) => {
      const { trace_tier, longlived_ttl_days } = await ask(`/sessions/${id}`);
      return [trace_tier, longlived_ttl_days];
    };
    await page.getByRole('tab', { name: 'Retention' }).click();
    await page.getByLabel('Tier of short').selectOption('Shortlived');
    await eventually(() => read(two)).toEqual(['shortlived', null]);
    await page.reload();
    await eventually(() => page.getByLabel('Tier of short').inputValue()).toBe('shortlived');
    expect(await page.getByLabel('Tier of kept').inputValue()).toBe('longlived');
    await expectAccessible(page);
    await page.getByLabel('Days of kept', { exact: true }).fill('30');
    await page.getByRole('button', { name: 'Save the days of kept' }).click();
    await eventually(() => read(one)).toEqual([null, 30]);
    await eventually(() => page.getByRole('button', { name: 'Save the days of kept' }).isDisabled()).toBe(true);
    await page.getByLabel('Days of kept', { exact: true }).fill('4000');
    await page.getByRole('button', { name: 'Save the days of kept' }).click();
    await page.getByRole('alert').getByText('7 to 400 days').waitFor();
    await page.getByLabel('Days of kept', { exact: true }).fill('');
    await page.getByRole('button', { name: 'Save the days of kept' }).click();
    await eventually(() => read(one)).toEqual([null, null]);
    await page.getByRole('searchbox', { name: 'Find a project' }).fill('KEP');
    await eventually(() => page.getByLabel(/^Tier of/).count()).toBe(1);
    await page.getByRole('searchbox', { name: 'Find a project' }).fill('nothing');
    await page.getByText('No project has this name').waitFor();
  });

  it('lists who changed what', async () => {
    await page.getByRole('tab', { name: 'Audit log' }).click();
    const panel = page.getByRole('tabpanel', { name: 'Audit log' });
    await panel.getByRole('row').filter({ hasText: 'api_key.create' }).first().waitFor();
    await expectAccessible(page);
    await page.getByLabel('Action').fill('member');
    await page.getByRole('button', { name: 'Filter' }).click();
    await eventually(() => page.getByRole('row').filter({ hasText: 'api_key.create' }).count()).toBe(0);
    await page.getByRole('row').filter({ hasText: 'ada@example.com' }).first().waitFor();
  });
});

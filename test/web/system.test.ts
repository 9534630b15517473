import { describe, expect, it } from 'vitest';
import { forSuite } from '../for-suite.ts';
import { eventually, expectAccessible, openPages, openWithPermissions, startSignedIn } from './browser.ts';
import { buildTrace, sendRuns } from './send-traces.ts';

/** A name at which ClickHouse refuses the row of a run, with the error of a value that it cannot read. */
const poison = 'poison <b>name</b>';

describe('the system screen', () => {
  const signedIn = forSuite(() => startSignedIn());
  const page = openPages(signedIn);

  async function alterRuns(change: string): Promise<void> {
    const { origin, pathname, username, password } = new URL(signedIn.runlake.stores().clickhouseUrl);
    const answer = await fetch(`${origin}/?database=${pathname.slice(1)}`, {
      method: 'POST',
      body: `ALTER TABLE runs ${change}`,
      headers: {
        authorization: `Basic ${Buffer.from(`${username}:${decodeURIComponent(password)}`).toString('base64')}`,
      },
    });
    expect(answer.status, await answer.text()).toBe(200);
  }
  const statusOf = async (runId: string) =>
    (await fetch(`${signedIn.runlake.url}/api/v1/runs/${runId}`, { headers: { 'x-api-key': signedIn.runlake.apiKey } }))
      .status;

  it('shows a record that ClickHouse refused, and replays it after the cause is gone', async () => {
    await page.goto('/system');
    await page.getByText('The queue is empty').waitFor();
    const checks = page.getByRole('region', { name: 'Checks' }).getByRole('listitem');
    await checks.filter({ hasText: 'ClickHouse' }).getByText('ok', { exact: true }).waitFor();
    await page.getByRole('region', { name: 'Freshness' }).getByText('Usage is behind by').waitFor();
    await alterRuns(`ADD CONSTRAINT web CHECK toUInt8(if(substring(ranked_name, 9) = '${poison}', 'x', '1')) = 1`);
    const traces = [poison, 'good'].map((name) => buildTrace('agent', Date.now() - 1000, { name, until: 10 }));
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, traces.flat());
    const [refused, stored] = traces.map(([run]) => run?.id ?? '') as [string, string];
    await eventually(() => statusOf(stored)).toBe(200);

    // The screen reads the state of the installation every ten seconds.
    page.setDefaultTimeout(30_000);
    const afterPoll = (read: () => Promise<number>) => expect.poll(read, { timeout: 30_000 });
    const queue = page.getByRole('region', { name: 'Newest dead-letter records' });
    await queue.getByRole('cell', { name: 'run-events', exact: true }).waitFor();
    await queue.getByRole('cell', { name: 'insert', exact: true }).waitFor();
    await page.getByText('1 record was not replayed').waitFor();
    await expectAccessible(page);
    expect(await statusOf(refused)).toBe(404);

    // While the cause remains, the record comes back.
    await page.getByRole('button', { name: 'Replay this record' }).click();
    await page.getByText('1 replayed, 0 refused.').waitFor();
    await afterPoll(() => queue.getByRole('row').count()).toBe(3);
    await page.getByText('1 record was not replayed').waitFor();
    expect(await statusOf(refused)).toBe(404);

    await alterRuns('DROP CONSTRAINT web');
    await page.getByRole('button', { name: 'Replay this record' }).click();
    await page.getByText('0 records were not replayed').waitFor();
    await eventually(() => statusOf(refused)).toBe(200);
    expect(await page.getByRole('button', { name: /^Replay/ }).count()).toBe(0);
    await afterPoll(() => queue.getByRole('time').count()).toBe(4);
    await expectAccessible(page);
    await page.goto(`/runs/${refused}`);
    await page.getByRole('heading', { name: poison, level: 1 }).waitFor();
  });

  it('is only for the operator', async () => {
    const other = await openWithPermissions(signedIn, ['projects:read'], '/system');
    await other.getByText('organizations:manage').waitFor();
    expect(await other.getByRole('link', { name: 'System' }).count()).toBe(0);
    await other.context().close();
  });
});

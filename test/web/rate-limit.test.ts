import { expect, it } from 'vitest';
import { forSuite } from '../for-suite.ts';
import { openPages, startSignedIn } from './browser.ts';
import { buildAgentTrace, sendRuns } from './send-traces.ts';

const signedIn = forSuite(() =>
  startSignedIn(({ url, apiKey }) => sendRuns(url, apiKey, buildAgentTrace('agent', Date.now() - 60_000, 1)), {
    environment: { RUNLAKE_RATE_LIMIT_PER_KEY: '5' },
  }),
);
const page = openPages(signedIn);

it('a screen that sends many requests at once shows all their data under a low rate limit', async () => {
  await page.goto('/usage?range=12m&show=tokens');
  const total = page.getByRole('rowheader', { name: 'Total' });
  await total.waitFor();
  const tokens = page.getByRole('row').filter({ has: total }).getByRole('cell').nth(1);
  await expect.poll(() => tokens.textContent(), { timeout: 15_000 }).toMatch(/^[1-9]/);
  expect(await page.getByRole('alert').count()).toBe(0);
});

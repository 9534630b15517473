import { beforeEach, describe, expect, it } from 'vitest';
import { operatorsByType, runFilterFields } from '../../pipelines/runs/filter/fields.ts';
import {
  completeFilter,
  fields,
  findPosition,
  operators,
  toExpression,
} from '../../web/src/screens/traces/filter-language.ts';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { countQueries, eventually, expectAccessible, openPages, startSignedIn } from './browser.ts';
import { buildTrace, sendAgentTraces, sendRuns } from './send-traces.ts';

describe('the filter language of the bar', () => {
  it('has the fields and operators of the parser', () => {
    expect([...fields].sort()).toEqual(Object.keys(runFilterFields).sort());
    const known = new Set<string>([...Object.values(operatorsByType).flat(), 'search']);
    expect([...operators].sort()).toEqual([...known].sort());
  });

  it('completes operators, fields and values where they can stand', () => {
    const at = (text: string) => completeFilter(text, text.length, new Map([['name', ['a "b"']]])).options;
    expect(at('g')).toEqual(['gt(', 'gte(']);
    expect(at('and(eq(sta')).toEqual(['status, ', 'start_time, ']);
    expect(at('eq(status, "e')).toEqual(['"error"']);
    expect(at('eq(name, ')).toEqual(['"a \\"b\\""']);
    expect(at('eq(constructor, ')).toEqual([]);
    expect(at('and(eq(name, "x, ("), ')).toContain('search(');
    expect(toExpression('refund (late)')).toBe('search("refund (late)")');
    expect(findPosition('Invalid filter at character 4: unknown field')).toBe(3);
  });
});

describe('the traces screen', () => {
  const signedIn = forSuite(() => startSignedIn(sendAgentTraces));
  const page = openPages(signedIn);
  beforeEach(async () => {
    await page.goto('/projects');
    await page.getByRole('link', { name: 'support-agent' }).click();
    await page.getByRole('table', { name: 'Runs' }).waitFor();
  });
  const rows = () => page.getByRole('table', { name: 'Runs' }).getByRole('row');
  const count = async () => Number(await page.getByRole('table', { name: 'Runs' }).getAttribute('aria-rowcount')) - 1;
  const figure = async (label: string) => page.locator('.figures div', { hasText: label }).locator('dd').textContent();

  it('lists the newest traces with figures, and loads older ones while it is scrolled', async () => {
    await eventually(() => figure('Runs')).toBe('250');
    expect(await figure('Errors')).toBe('11.2 %');
    expect(await count()).toBe(100);
    await expectAccessible(page);
    await eventually(async () => {
      await page.locator('.virtual-scroll').evaluate((element) => element.scrollTo(0, element.scrollHeight));
      return count();
    }).toBe(250);
    // Only rows in view are in the document.
    expect(await rows().count()).toBeLessThan(80);
    await page.getByText('250 runs; these are all.').waitFor();
  });

  it('is as it was when the viewer comes back, and as it is now on each other visit', async () => {
    const scroller = page.locator('.virtual-scroll');
    await scroller.evaluate((element) => element.scrollTo(0, 3000));
    await eventually(count).toBe(200);
    const shown = page.locator('[data-index="95"]');
    const { top } = await shown.evaluate((row) => row.getBoundingClientRect());
    await shown.click();
    await page.getByRole('tree', { name: 'Runs' }).waitFor();
    await page.goBack();
    await shown.waitFor();
    expect(await count()).toBe(200);
    await eventually(() => shown.evaluate((row) => row.getBoundingClientRect().top)).toBe(top);
    await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Projects' }).click();
    await page.getByRole('link', { name: 'support-agent' }).click();
    await eventually(count).toBe(100);
  });

  it('keeps no lists of earlier visits', async () => {
    const visit = async () => {
      await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Projects' }).click();
      await page.getByRole('link', { name: 'support-agent' }).click();
      await rows().nth(1).click();
      await page.getByRole('tree', { name: 'Runs' }).waitFor();
      await page.goBack();
      await rows().nth(1).waitFor();
    };
    await visit();
    const before = await countQueries(page);
    for (let done = 0; done < 3; done++) await visit();
    expect(await countQueries(page)).toEqual(before);
  });

  it('filters by expression, by text and by one click, and keeps that in the address', async () => {
    const filter = page.getByRole('combobox', { name: 'Filter' });
    await filter.fill('gt(latancy, 2)');
    await page.getByText('did you mean `latency`').waitFor();
    expect(await page.locator('mark').textContent()).toBe('l');
    await filter.fill('eq(sta');
    await page.getByRole('option', { name: 'status,' }).waitFor();
    await filter.press('ArrowDown');
    await filter.press('Enter');
    await eventually(() => filter.inputValue()).toBe('eq(status, ');
    await filter.press('ArrowDown');
    await filter.press('ArrowDown');
    await filter.press('Tab');
    await filter.press('End');
    await filter.pressSequentially(')');
    await filter.press('Enter');
    await eventually(() => figure('Runs')).toBe('28');
    await page.getByRole('button', { name: 'Slow (over 5 s)' }).click();
    await eventually(() => figure('Runs')).toBe('4');
    await page.reload();
    await eventually(() => figure('Runs')).toBe('4');
    await page.getByRole('button', { name: 'Slow (over 5 s)' }).click();
    await filter.fill('order 48213');
    await filter.press('Enter');
    expect(await filter.inputValue()).toBe('search("order 48213")');
    await eventually(() => figure('Runs')).not.toBe('28');
    await page.getByRole('button', { name: 'Clear the filter' }).click();
    await page.getByRole('button', { name: 'Name ▾' }).click();
    await page.getByRole('button', { name: /triage agent/ }).click();
    await eventually(() => figure('Runs')).toBe('50');
  });

  it('filters by the tags and metadata that occur, with their number of runs', async () => {
    await eventually(() => figure('Runs')).toBe('250');
    await page.getByRole('button', { name: 'Tag ▾' }).click();
    const tags = page.locator('.popover-panel').getByRole('button');
    await eventually(() => tags.allTextContents()).toEqual(['prod250', 'eu-west84']);
    await expectAccessible(page);
    await tags.nth(1).click();
    await eventually(() => figure('Runs')).toBe('84');
    await page.getByRole('button', { name: 'Metadata ▾' }).click();
    await page.getByRole('button', { name: 'plan', exact: true }).click();
    // Every third run has the second tag, and these have the same plan.
    await eventually(() => tags.allTextContents()).toEqual(['‹ plan', 'free84']);
    await tags.first().click();
    await page.getByRole('button', { name: 'user_id', exact: true }).click();
    await page.getByRole('button', { name: /^u-0/ }).click();
    await eventually(() => figure('Runs')).toBe('5');
    await page.getByRole('button', { name: 'Metadata ▾' }).click();
    await page.getByRole('button', { name: 'plan', exact: true }).click();
    await page.getByRole('button', { name: 'free 5' }).click();
    await page.reload();
    await eventually(() => figure('Runs')).toBe('5');
    await page.getByRole('button', { name: 'has(tags, "eu-west")' }).click();
    await page.getByRole('button', { name: /"plan"/ }).click();
    await eventually(() => figure('Runs')).toBe('13');
  });

  it('is used by keyboard, and explains its keys', async () => {
    await page.keyboard.press('?');
    await page.getByRole('dialog').getByText('Live tail on or off').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('/');
    await eventually(() => page.evaluate(() => document.activeElement?.getAttribute('aria-label'))).toBe('Filter');
    await rows().nth(1).focus();
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    await eventually(() => page.evaluate(() => document.activeElement?.getAttribute('data-index'))).toBe('2');
    await page.keyboard.press('Enter');
    await page.getByRole('tree', { name: 'Runs' }).waitFor();
  });

  it('shows new traces while live tail is on', async () => {
    await page.getByRole('button', { name: 'Live' }).click();
    await sendRuns(
      signedIn.runlake.url,
      signedIn.runlake.apiKey,
      buildTrace('support-agent', Date.now(), { name: 'just now' }),
    );
    await rows().filter({ hasText: 'just now' }).filter({ hasText: 'runs' }).waitFor();
  });

  it('keeps new traces of the live tail that newer ones move out of the first page', async () => {
    const before = await count();
    await page.getByRole('button', { name: 'Live' }).click();
    for (const batch of [1, 2]) {
      const now = Date.now();
      const runs = Array.from({ length: 60 }, (_, index) =>
        buildTrace('support-agent', now + index, { name: `batch ${batch}`, until: 10 }),
      );
      await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, runs.flat());
      await eventually(count).toBe(before + 60 * batch);
    }
  });

  it('has no gap in the live tail after more new traces than a page has', async () => {
    await page.getByRole('button', { name: 'Live' }).click();
    const polls = '**/api/v2/runs/query';
    await page.waitForResponse(polls);
    // As in a tab in the background, the browser does not poll.
    await page.route(polls, (route) => route.abort());
    const now = Date.now();
    const runs = Array.from({ length: 150 }, (_, index) =>
      buildTrace('support-agent', now + index, { name: 'unseen', until: 10 }),
    );
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, runs.flat());
    await page.unroute(polls);
    const newest = rows().nth(1);
    await eventually(() => newest.textContent()).toContain('unseen');
    await eventually(async () => {
      await page.locator('.virtual-scroll').evaluate((element) => element.scrollTo(0, element.scrollHeight));
      return page.getByText('these are all.').count();
    }).toBe(1);
    await eventually(() => figure('Runs')).toBe(String(await count()));
  });

  it('shows a run no longer when it has ended, if the live tail shows runs that have not', async () => {
    const [root] = buildTrace('support-agent', Date.now(), { name: 'not ended yet' });
    await page.getByRole('button', { name: 'Not ended' }).click();
    await page.getByRole('button', { name: 'Live' }).click();
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, root ? [root] : []);
    const row = rows().filter({ hasText: 'not ended yet' });
    await row.waitFor();
    const body = { end_time: new Date().toISOString() };
    await askRunlake(signedIn.runlake, `/runs/${root?.id}`, { method: 'PATCH', body });
    await eventually(() => row.count()).toBe(0);
  });

  it('shows a range that ends when it is chosen, and moves its figures while live tail is on', async () => {
    await page.clock.install();
    await page.reload();
    await rows().nth(1).waitFor();
    const minutes = (time: string) => (Date.parse(time) - Date.now()) / 60_000;
    await page.clock.fastForward('02:00:00');
    const [list, figures] = await Promise.all([
      page.waitForRequest('**/api/v2/runs/query'),
      page.waitForRequest('**/api/v1/runs/stats'),
      page
        .getByRole('button', { name: 'Last 7 days' })
        .click()
        .then(() => page.getByRole('button', { name: 'Last hour' }).click()),
    ]);
    expect(minutes(list.postDataJSON().min_start_time)).toBeGreaterThan(58);
    expect(minutes(figures.postDataJSON().start_time)).toBeGreaterThan(58);
    await page.getByRole('button', { name: 'Live' }).click();
    await page.clock.fastForward('01:00:00');
    const later = await page.waitForRequest(
      (request) => request.url().endsWith('/runs/stats') && minutes(request.postDataJSON().start_time) > 100,
    );
    expect(minutes(later.postDataJSON().start_time)).toBeGreaterThan(118);
  });

  it('chooses columns and remembers them', async () => {
    await page.getByRole('button', { name: 'Columns' }).click();
    await page.getByRole('checkbox', { name: 'Thread' }).check();
    await page.keyboard.press('Escape');
    await page.getByRole('columnheader', { name: 'Thread' }).waitFor();
    await page.reload();
    await page.getByRole('columnheader', { name: 'Thread' }).waitFor();
    await page.evaluate(() => localStorage.removeItem('runlake.trace-columns'));
  });

  it('opens its panels within the window of a phone', async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    for (const name of ['Columns', 'Name ▾']) {
      const button = page.getByRole('button', { name });
      await button.click();
      const isInWindow = () =>
        page.locator('.popover-panel').evaluate((panel) => {
          const { left, right } = panel.getBoundingClientRect();
          return left >= 0 && right <= window.innerWidth;
        });
      await eventually(isInWindow).toBe(true);
      await button.click();
    }
  });

  it('shows times in the zone of the viewer, and UTC as the tooltip', async () => {
    const time = rows().nth(1).getByRole('time');
    const [shown, utc] = [await time.textContent(), await time.getAttribute('title')];
    const at = new Date((await time.getAttribute('datetime')) ?? '');
    expect(utc).toBe(`${at.toISOString().replace('T', ' ').slice(0, 23)} UTC`);
    const berlin = at.toLocaleTimeString('de-DE', { timeZone: 'Europe/Berlin', hour12: false });
    expect(shown?.endsWith(berlin)).toBe(true);
  });

  it('does not apply a time range with a mistyped year', async () => {
    await page.getByRole('button', { name: 'Last 7 days' }).click();
    await page.getByLabel('From').fill('20266-01-01T00:00');
    await page.getByRole('button', { name: 'Apply' }).click();
    const reason = await page.getByLabel('From').evaluate((input) => (input as HTMLInputElement).validationMessage);
    expect(reason).toContain('9999');
  });

  it('says so when the API fails or is slow, and recovers', async () => {
    await page.route('**/api/v2/runs/query', (route) =>
      route.fulfill({ status: 503, json: { detail: 'The database is away.' } }),
    );
    await page.reload();
    await page.getByRole('alert').waitFor();
    expect(await page.getByRole('alert').textContent()).toContain('The database is away.');
    await expectAccessible(page);
    await page.unroute('**/api/v2/runs/query');
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page.route('**/api/v2/runs/query', async (route) => {
      await held;
      await route.continue();
    });
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.reload();
    await page.getByText('Loading runs').waitFor();
    release();
    await page.getByRole('table', { name: 'Runs' }).waitFor();
  });

  it('stays as it is if its project cannot be read again', async () => {
    await page.clock.install();
    await page.reload();
    await rows().nth(1).waitFor();
    const filter = page.getByRole('combobox', { name: 'Filter' });
    await filter.fill('not applied yet');
    const project = /\/api\/v1\/sessions\/[^/]+$/;
    await page.route(project, (route) => route.fulfill({ status: 400, json: { detail: 'Away.' } }));
    // The second read begins after the failure of the first one is shown.
    for (const _ of [1, 2]) {
      await page.clock.fastForward('00:30');
      const read = page.waitForRequest(project);
      await page.evaluate(() => window.dispatchEvent(new Event('visibilitychange')));
      await read;
    }
    expect(await filter.inputValue()).toBe('not applied yet');
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe('support-agent');
  });

  it('asks for a page that fails once, and again on request', async () => {
    let requests = 0;
    await page.unroute('**/api/v2/runs/query');
    await page.route('**/api/v2/runs/query', async (route) => {
      if ((route.request().postDataJSON() as { cursor: string | null }).cursor !== null) {
        requests += 1;
        return route.fulfill({ status: 400, json: { detail: 'Broken.' } });
      }
      const response = await route.fetch();
      return route.fulfill({ response, json: { ...(await response.json()), has_more: true, next_cursor: 'next' } });
    });
    await page.reload();
    await rows().nth(1).waitFor();
    await page.locator('.virtual-scroll').evaluate((list) => list.scrollTo(0, list.scrollHeight));
    const footer = page.getByText('The next page did not load.');
    await footer.waitFor();
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Try again' }).click();
    await eventually(() => requests).toBe(2);
    await footer.waitFor();
    expect(requests).toBe(2);
    await page.unroute('**/api/v2/runs/query');
  });
});

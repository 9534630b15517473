import type { Page, Route } from 'playwright-core';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import { pickSome } from '../house/extent.ts';
import { deferred } from '../infra/deferred.ts';
import {
  createKey,
  eventually,
  expectAccessible,
  openContext,
  openWithPermissions,
  signIn,
  startSignedIn,
} from './browser.ts';
import { buildAgentTrace, type SentRun, sendRuns } from './send-traces.ts';

let trace: readonly SentRun[];
let projectId: string;

const signedIn = forSuite(() =>
  startSignedIn(
    async (started) => {
      const { url, apiKey } = started;
      await createKey(started, { description: 'listed' });
      trace = buildAgentTrace('agent', Date.now() - 60_000, 1);
      await sendRuns(url, apiKey, trace);
      [{ id: projectId }] = await askRunlake(started, '/sessions?name=agent');
    },
    { environment: { RUNLAKE_SHARE_PUBLIC_PROMPTS: 'true' } },
  ),
);
let page: Page;
beforeEach(async () => {
  page = await signedIn.openPage();
});

/** Each screen, what is visible when its data has arrived, and the permission that it needs. */
const screens: readonly (readonly [name: string, path: () => string, ready: string | RegExp, permission: string])[] = [
  ['home', () => '/', 'Last trace', 'projects:read'],
  ['projects', () => '/projects', 'Last trace', 'projects:read'],
  ['traces', () => `/projects/${projectId}`, 'support agent', 'runs:read'],
  ['trace', () => `/runs/${trace[0]?.id}`, 'retrieve context', 'runs:read'],
  ['threads', () => `/projects/${projectId}/threads`, 'thread-1', 'runs:read'],
  ['thread', () => `/projects/${projectId}/threads?thread=thread-1`, 'Summarise the incident', 'runs:read'],
  ['datasets', () => '/datasets', 'There are no datasets yet', 'datasets:read'],
  ['prompts', () => '/prompts', 'There are no prompts yet', 'prompts:read'],
  ['public prompts', () => '/prompts?public=true', 'There are no public prompts', 'prompts:read'],
  ['queues', () => '/queues', 'There are no annotation queues', 'annotation-queues:read'],
  ['agents', () => '/agents', 'This workspace has no deployments', 'deployments:read'],
  ['usage', () => '/usage', /No traces in this range|^Total$/, 'organization:read'],
  ['exports', () => '/exports', 'No exports', 'bulk-exports:read'],
  ['destinations', () => '/exports?tab=Destinations', 'No destinations', 'bulk-exports:read'],
  ['new export', () => '/exports/new', 'Create a destination first.', 'bulk-exports:manage'],
  ['keys', () => '/settings?tab=Keys', 'Last used', 'api-keys:read'],
  ['members', () => '/settings?tab=Members', 'Since', 'organization:read'],
  ['retention', () => '/settings?tab=Retention', 'agent', 'projects:read'],
  ['audit log', () => '/settings?tab=Audit%20log', 'session.create', 'audit-logs:read'],
  ['system', () => '/system', 'The queue is empty', 'organizations:manage'],
];

/** Requests of screens, not of the session and of what every screen shows. */
const data = (url: URL) =>
  /^\/api\/v\d\//.test(url.pathname) && !/^\/api\/v1\/(session|workspaces)$/.test(url.pathname);
const shown = (text: string | RegExp) => page.getByRole('main').getByText(text).first();

describe.each(pickSome(screens, 1 / 2))('the screen %s', (_name, path, ready, permission) => {
  it.each<[string, (route: Route) => Promise<void>, string]>([
    [
      'answers 500',
      (route) => route.fulfill({ status: 500, json: { detail: 'The database is away.' } }),
      'The database is away.',
    ],
    ['refuses connections', (route) => route.abort('connectionrefused'), 'Runlake does not answer.'],
  ])('says that the API %s, and recovers', async (_what, fail, message) => {
    await page.route(data, fail);
    await page.goto(path());
    const alert = page.getByRole('main').getByRole('alert').first();
    await alert.getByText(message).waitFor();
    await expectAccessible(page);
    await page.unroute(data);
    await alert.getByRole('button', { name: 'Try again' }).click();
    await shown(ready).waitFor();
  });

  it('says that it loads while the API is slow', async () => {
    const { promise: held, resolve: release } = deferred();
    await page.route(data, async (route) => {
      await held;
      await route.continue();
    });
    await page.goto(path());
    await page.getByRole('main').getByRole('status').getByText('…').first().waitFor();
    await expectAccessible(page);
    expect(await shown(ready).count()).toBe(0);
    release();
    await shown(ready).waitFor();
  });

  it('names the permission that the key lacks', async () => {
    page = await openWithPermissions(signedIn, ['feedback:read'], path());
    await page.getByRole('main').getByText(permission).waitFor();
    await expectAccessible(page);
  });
});

const id = '00000000-0000-4000-8000-000000000000';

it.each([`/queues/${id}`, `/agents/${id}`, `/exports/${id}`, `/public/${id}/r`, `/public/${id}/d`])(
  '%s is accessible while the API does not answer',
  async (path) => {
    await page.route(data, () => undefined);
    await page.goto(path);
    await page.getByRole('main').getByRole('status').getByText('Loading').waitFor();
    await expectAccessible(page);
  },
);

it('a refusal says what is missing', async () => {
  const json = { detail: 'Forbidden', remedy: "The API key lacks the permission 'projects:read'." };
  await page.route(data, (route) => route.fulfill({ status: 403, json }));
  await page.goto('/projects');
  await page.getByRole('main').getByRole('alert').getByText(json.remedy).waitFor();
});

it('a screen that has loaded keeps its data while the API fails, and is up to date by itself or on request', async () => {
  await page.clock.install();
  await page.goto('/system');
  await shown('The queue is empty').waitFor();
  const failed = page.getByRole('alert').filter({ hasText: 'Not up to date' });
  const fail = async () => {
    await page.route(data, (route) => route.fulfill({ status: 400, json: { detail: 'The database is away.' } }));
    // The next read of the screen; it polls every ten seconds, which is as long as this test waits for anything.
    await page.clock.fastForward('00:11');
    await failed.waitFor();
    expect(await shown('The queue is empty').count()).toBe(1);
    await page.unroute(data);
  };
  await fail();
  await page.clock.fastForward('00:11');
  await eventually(() => failed.count()).toBe(0);
  await fail();
  await failed.getByRole('button', { name: 'Try again' }).click();
  await eventually(() => failed.count()).toBe(0);
});

it('a part of the dashboard that does not load is loaded when the viewer tries again', async () => {
  // Not watched: React logs the error.
  const context = await openContext(signedIn.browser, signedIn.runlake.url);
  onTestFinished(() => context.close());
  const page = await context.newPage();
  await signIn(page, signedIn.runlake.apiKey);
  const parts = '**/assets/share-button*';
  await page.route(parts, (route) => route.fulfill({ status: 404 }));
  await page.goto(`/runs/${trace[0]?.id}`);
  const again = page.getByRole('alert').getByRole('button', { name: 'Try again' });
  await again.waitFor();
  await page.unroute(parts);
  await again.click();
  await page.getByRole('tree', { name: 'Runs' }).waitFor();
  await page.getByRole('button', { name: 'Share' }).waitFor();
  await page.context().close();
});

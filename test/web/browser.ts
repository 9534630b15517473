import { connect, createServer, type Socket } from 'node:net';
import type { QueryClient } from '@tanstack/react-query';
import axe from 'axe-core';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { beforeEach, expect, onTestFinished } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { createProxyTo } from '../for-suite.ts';
import { listenOnLoopback } from '../infra/listen-on-loopback.ts';
import { type RunlakeOptions, type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { startBrowser } from './start-browser.ts';

export { startBrowser };

/** Expects a value within ten seconds. */
export function eventually<T>(read: () => T | Promise<T>) {
  return expect.poll(read, { timeout: 10_000 });
}

export interface ContextOptions {
  readonly width?: number;
  readonly theme?: 'light' | 'dark';
  readonly timezoneId?: string;
  readonly locale?: string;
}

/** Opens a context of its own cookies, whose pages collect their errors. */
export async function openContext(
  browser: Browser,
  url: string,
  options: ContextOptions = {},
): Promise<BrowserContext> {
  const width = options.width ?? 1280;
  const context = await browser.newContext({
    baseURL: url,
    viewport: { width, height: width < 800 ? 844 : 800 },
    colorScheme: options.theme ?? 'light',
    timezoneId: options.timezoneId ?? 'Europe/Berlin',
    locale: options.locale ?? 'en-US',
  });
  context.setDefaultTimeout(15_000);
  return context;
}

/** Signs in with a key through the form. */
export async function signIn(page: Page, apiKey: string, path = '/'): Promise<void> {
  await page.goto(path);
  await page.getByLabel('API key').fill(apiKey);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('navigation', { name: 'Screens' }).waitFor();
}

/** Creates an API key with some of the permissions of the admin key. */
export function createKey(runlake: RunlakeProcess, body: object): Promise<{ id: string; key: string }> {
  return askRunlake(runlake, '/api-key', { body });
}

export interface SignedInBrowser {
  readonly runlake: RunlakeProcess;
  readonly browser: Browser;
  /** Closes the last page and opens another one in the same session for a test. */
  openPage(): Promise<Page>;
  close(): Promise<void>;
}

/** Starts Runlake, and Chromium with a session of its admin key. `prepare` runs before the browser opens a page. */
export async function startSignedIn(
  prepare: (runlake: RunlakeProcess) => Promise<void> = async () => undefined,
  options: RunlakeOptions = {},
): Promise<SignedInBrowser> {
  const [runlake, browser] = await Promise.all([startRunlake(options), startBrowser()]);
  await prepare(runlake);
  const context = await openContext(browser, runlake.url);
  let page = await context.newPage();
  await signIn(page, runlake.apiKey);
  return {
    runlake,
    browser,
    async openPage() {
      await page.close();
      page = await context.newPage();
      watchPage(page);
      return page;
    },
    async close() {
      await browser.close();
      await runlake.remove();
    },
  };
}

/**
 * Opens a page in a context of its own, which the caller closes, and signs in with a new key that has only these
 * permissions.
 */
export async function openWithPermissions(
  { runlake, browser }: Pick<SignedInBrowser, 'runlake' | 'browser'>,
  permissions: readonly string[],
  path?: string,
): Promise<Page> {
  const { key } = await createKey(runlake, { description: 'limited', permissions });
  const page = await (await openContext(browser, runlake.url)).newPage();
  await signIn(page, key, path);
  return page;
}

/** Loses the response of the next request with this method to a URL that matches; the server processes the request. */
export async function loseResponse(page: Page, method: string, url: RegExp): Promise<void> {
  let isLost = false;
  await page.route(url, async (route) => {
    if (isLost || route.request().method() !== method) return route.fallback();
    isLost = true;
    await route.fetch();
    await route.abort('connectionreset');
  });
}

/** Returns a proxy of the page of the current test. */
export function openPages(signedIn: SignedInBrowser): Page {
  let page: Page | undefined;
  beforeEach(async () => {
    page = await signedIn.openPage();
  });
  return createProxyTo(() => page);
}

/**
 * Fails the test at its end if something happened on the page that must not: exceptions, refusals of the content security
 * policy, requests to other hosts.
 */
export function watchPage(page: Page): void {
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => {
    // Chromium also logs responses of 401 and so on, which tests cause on purpose.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      problems.push(message.text());
  });
  page.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('request', (request) => {
    const { protocol, host } = new URL(request.url());
    if (protocol.startsWith('http') && host !== new URL(page.url()).host && page.url() !== 'about:blank')
      problems.push(`request to ${request.url()}`);
  });
  onTestFinished(() => expect(problems).toEqual([]));
}

/** Returns how many responses the application keeps, by the first part of their key. */
export function countQueries(page: Page): Promise<Record<string, number>> {
  return page.evaluate(() => {
    interface Fiber {
      readonly child: Fiber | null;
      readonly memoizedProps: { readonly client?: QueryClient } | null;
    }
    const root = document.getElementById('root') as unknown as Record<string, Fiber>;
    let fiber: Fiber | null | undefined =
      root[Object.keys(root).find((key) => key.startsWith('__reactContainer$')) ?? ''];
    while (fiber && !fiber.memoizedProps?.client) fiber = fiber.child;
    const counts: Record<string, number> = {};
    for (const { queryKey } of fiber?.memoizedProps?.client?.getQueryCache().getAll() ?? []) {
      const name = String(queryKey[0]);
      counts[name] = (counts[name] ?? 0) + 1;
    }
    return counts;
  });
}

/** Fails if axe-core finds a violation of WCAG 2.2 AA on the page. */
export async function expectAccessible(page: Page): Promise<void> {
  // `evaluate` is not subject to the content security policy of the page.
  await page.evaluate(axe.source);
  const violations = await page.evaluate(async () => {
    const { axe: inPage } = window as unknown as { axe: typeof axe };
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    const found = await inPage.run(document, { runOnly: { type: 'tag', values: tags } });
    return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
  });
  expect(violations).toEqual([]);
}

/** A line to a port of this machine that can be cut, as when a laptop sleeps. */
export async function openLine(port: number) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const target = connect(port, '127.0.0.1');
    for (const each of [socket, target]) {
      sockets.add(each);
      each.on('error', () => undefined);
      each.on('close', () => {
        socket.destroy();
        target.destroy();
        sockets.delete(each);
      });
    }
    socket.pipe(target).pipe(socket);
  });
  const url = `http://127.0.0.1:${await listenOnLoopback(server)}`;
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url,
    cut,
    close: () => {
      cut();
      server.close();
    },
  };
}

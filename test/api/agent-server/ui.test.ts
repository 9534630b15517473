import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { describe, expect, it } from 'vitest';
import { copyProjectsWithLibrary } from '../../agents/projects-with.ts';
import { forSuite } from '../../for-suite.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { startBrowser } from '../../web/start-browser.ts';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

/** The UIs of a langgraph.json, with the stock client, and the page of a client in a browser. */

const agent = forSuite(async () => startAgentServer({ project: 'ui', projects: await copyProjectsWithLibrary('ui') }));
const unbundled = forSuite(() => startAgentServer({ project: 'ui' }));

const getHtml = ({ client }: AgentServerUnderTest, ui: string, component: string) =>
  client['~ui'].getComponent(ui, component);

const readScriptUrl = (html: string) => /src="([^"]*)"/.exec(html)?.[1] ?? '';

describe('a component', () => {
  it('is shown by LoadExternalComponent of the SDK, with its state, its styles and the stream of the page', async () => {
    const script = await bundleClientPage({ apiUrl: agent.url, apiKey: agent.owner.adminKey });
    const pages = createServer((request, response) => {
      response.setHeader('content-type', request.url === '/page.js' ? 'text/javascript' : 'text/html');
      response.end(request.url === '/page.js' ? script : '<div id="root"></div><script src="/page.js"></script>');
    });
    const port = await listenOnLoopback(pages);
    const browser = await startBrowser();
    try {
      const page = await browser.newPage();
      const errors: Error[] = [];
      page.on('pageerror', (error) => errors.push(error));
      await page.addInitScript(executeScriptsOfFragments);
      await page.goto(`http://127.0.0.1:${port}/`);
      await page.getByText('Ask').click();
      const card = page.getByText('Lyon: sunny');
      await card.click();
      await page.getByText('Lyon: sunny, 1 clicks, 1 message').waitFor();
      // The class `p-4`.
      const padding = `getComputedStyle(document.querySelector('main > div').shadowRoot.querySelector('button')).padding`;
      await expect.poll(() => page.evaluate(padding)).toBe('16px');
      expect(errors).toEqual([]);
    } finally {
      await browser.close();
      pages.close();
    }
  });

  it('cannot end the HTML or the script with its name', async () => {
    const name = `'"><script>alert(1)</script>\u2028\\&quot;`;
    const answer = await agent.ask('POST', '/ui/weather', { name });
    const html = await answer.text();
    const [, render = ''] = /onload='([^']*)'/.exec(html) ?? [];
    expect(render).toMatch(/^__LGUI_weather\.render\("[\w\\]+", "\{\{shadowRootId\}\}"\)$/);
    expect(JSON.parse(render.slice(render.indexOf('"'), render.indexOf(',')))).toBe(name);
    expect(html.match(/<\/?\w+/g)?.sort()).toEqual(['</script', '<link', '<script']);
  });

  it('is loaded from the address of a proxy', async () => {
    const answer = await agent.ask('POST', '/ui/weather', { name: 'card' }, { 'x-forwarded-prefix': '/deployments/a' });
    expect(await answer.text()).toContain(`"${agent.url}/deployments/a/ui/weather/entrypoint.js?version=`);
  });

  it.each([{}, { name: '' }, { name: 7 }, { name: 'x'.repeat(1_001) }])('needs a name: %j', async (body) => {
    expect((await agent.ask('POST', '/ui/weather', body)).status).toBe(422);
  });

  it('needs a key', async () => {
    const answer = await fetch(`${agent.url}/ui/weather`, { method: 'POST', body: '{"name": "card"}' });
    expect(answer.status).toBe(401);
  });
});

describe('a file', () => {
  it('needs no key, and is cached until it changes', async () => {
    const url = readScriptUrl(await getHtml(agent, 'weather', 'file'));
    const answer = await fetch(url, { headers: { origin: 'https://page.example' } });
    expect(answer.status).toBe(200);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'access-control-allow-origin': '*',
      'cache-control': 'public, max-age=31536000, immutable',
      'content-type': 'text/javascript; charset=utf-8',
    });
    expect(await answer.text()).toContain('__LGUI_weather');
    const other = await fetch(url.replace(/version=.*/, 'version=other'));
    expect([other.status, other.headers.get('cache-control')]).toEqual([200, 'no-cache']);
  });

  it.each([
    '/ui/weather/other.js',
    '/ui/other/entrypoint.js',
    '/ui/broken/entrypoint.js',
    '/ui/weather/..%2f..%2fui.jsx',
  ])('%s is unknown', async (path) => {
    const answer = await fetch(`${agent.url}${path}`);
    expect(answer.status).toBe(404);
  });
});

describe('a UI that cannot be built', () => {
  const ask = async (server: AgentServerUnderTest, ui: string) => {
    const answer = await server.ask('POST', `/ui/${ui}`, { name: 'card' });
    return { status: answer.status, text: await answer.text() };
  };

  it('is reported with the reason; the graph and the other UIs stay available', async () => {
    const { status, text } = await ask(agent, 'broken');
    expect(status).toBe(422);
    expect(text).toContain(
      `The UI 'broken' cannot be built: Build failed with 1 error:\\nentrypoint-ns:ui.entrypoint.tsx:1:15: ERROR: Could not resolve \\"./missing.js\\"`,
    );
    expect(await agent.client.runs.wait(null, 'weather', { input: { city: 'Oslo' } })).toMatchObject({ city: 'Oslo' });
  });

  it('says which package is missing in the project', async () => {
    const { status, text } = await ask(unbundled, 'weather');
    expect(status).toBe(422);
    expect(text).toContain("the package '@langchain/langgraph-ui' is not installed in its project: install it there");
  });

  it('is unknown if the langgraph.json does not name it', async () => {
    expect(await ask(agent, 'other')).toMatchObject({ status: 404 });
  });
});

/** The Chromium of the tests, 147, does not execute the scripts of fragments. Other releases do, as the standard says. */
const executeScriptsOfFragments = `
  const { createContextualFragment } = Range.prototype;
  Range.prototype.createContextualFragment = function (html) {
    const fragment = createContextualFragment.call(this, html);
    for (const parsed of fragment.querySelectorAll('script')) {
      const script = document.createElement('script');
      for (const { name, value } of parsed.attributes) script.setAttribute(name, value);
      parsed.replaceWith(script);
    }
    return fragment;
  };`;

/** Bundles the page of a client, as its developers do. */
async function bundleClientPage(settings: object): Promise<string> {
  const { outputFiles } = await build({
    stdin: {
      contents: `
        import { useStream } from '@langchain/langgraph-sdk/react';
        import { LoadExternalComponent, uiMessageReducer } from '@langchain/langgraph-sdk/react-ui';
        import { createElement as h } from 'react';
        import { createRoot } from 'react-dom/client';

        function Page() {
          const stream = useStream({
            ...${JSON.stringify(settings)},
            assistantId: 'weather',
            onCustomEvent: (event, { mutate }) => mutate(({ ui = [], ...values }) => ({ ...values, ui: uiMessageReducer(ui, event) })),
          });
          return h('main', {},
            h('button', { onClick: () => stream.submit({ city: 'Lyon' }) }, 'Ask'),
            (stream.values.ui ?? []).map((message) => h(LoadExternalComponent, { key: message.id, stream, message })));
        }
        createRoot(document.getElementById('root')).render(h(Page));`,
      loader: 'tsx',
      resolveDir: fileURLToPath(new URL('.', import.meta.url)),
    },
    bundle: true,
    write: false,
    format: 'iife',
    platform: 'browser',
    define: { 'process.env.NODE_ENV': '"production"' },
    logLevel: 'silent',
  });
  return outputFiles[0]!.text;
}

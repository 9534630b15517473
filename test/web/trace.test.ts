import { describe, expect, it } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { forSuite } from '../for-suite.ts';
import {
  eventually,
  expectAccessible,
  loseResponse,
  openContext,
  openPages,
  startSignedIn,
  watchPage,
} from './browser.ts';
import { buildAgentTrace, buildLargeTrace, buildTrace, type SentRun, sendRuns } from './send-traces.ts';

describe('the trace screen', () => {
  const signedIn = forSuite(() => startSignedIn());
  const page = openPages(signedIn);
  const tree = () => page.getByRole('tree', { name: 'Runs' });
  const selected = () => page.getByRole('treeitem', { selected: true });
  const detail = () => page.getByRole('region', { name: 'Run', exact: true });

  async function open(runs: readonly SentRun[], path = `/runs/${runs[0]?.id}`): Promise<void> {
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, runs);
    await page.goto(path);
    await tree().waitFor();
  }

  it('shows the tree, the conversation, figures, metadata and raw bytes of a run', async () => {
    const runs = buildAgentTrace('agent', Date.now() - 60_000, 1);
    await open(runs);
    await eventually(() => page.getByRole('treeitem').count()).toBe(5);
    await detail().getByText('Here is what I found').waitFor();
    await expectAccessible(page);
    await page.getByRole('treeitem').filter({ hasText: 'plan' }).click();
    await eventually(() => new URL(page.url()).pathname).toBe(`/runs/${runs[2]?.id}`);
    await detail().getByText('search_orders').waitFor();
    expect(await detail().textContent()).toContain('413 in, 38 out');
    await page.getByRole('button', { name: 'JSON' }).first().click();
    await page.getByRole('region', { name: 'Input' }).getByRole('button', { name: 'messages: [2]' }).waitFor();
    await page.getByRole('button', { name: 'Text' }).first().click();
    await page.getByRole('searchbox', { name: 'Find in input' }).fill('support agent');
    await detail().getByText('1 match').waitFor();
    expect(await detail().locator('mark').textContent()).toBe('support agent');
    await page.getByRole('tab', { name: 'Metadata' }).click();
    await detail().getByText('gpt-4o-mini').waitFor();
    await expectAccessible(page);
    await page.getByRole('tab', { name: 'Raw' }).click();
    await detail().getByText(`"id":"${runs[2]?.id}"`).waitFor();
  });

  it('shows the arguments of tool calls with all digits', async () => {
    const call = {
      id: 'call_1',
      type: 'function',
      function: { name: 'find', arguments: '{"id": 1234567890123456789}' },
    };
    const outputs = { messages: [{ role: 'assistant', content: null, tool_calls: [call] }] };
    await open(buildTrace('digits', Date.now() - 60_000, { name: 'call', run_type: 'llm', until: 10, outputs }));
    await detail().getByText('1234567890123456789', { exact: true }).waitFor();
  });

  it('adds feedback once, although the response to the first request is lost', async () => {
    const runs = buildTrace('repeated', Date.now() - 60_000, { name: 'rated', until: 10 });
    await open(runs, `/runs/${runs[0]?.id}?tab=Feedback`);
    await loseResponse(page, 'POST', /\/feedback$/);
    await page.getByRole('textbox', { name: 'Key' }).fill('correct');
    await page.getByRole('button', { name: 'Add' }).click();
    await page.getByRole('alert').getByText('Runlake does not answer').waitFor();
    await page.getByRole('button', { name: 'Add' }).click();
    const entries = detail().locator('.feedback-list li');
    await entries.first().waitFor();
    expect(await entries.count()).toBe(1);
    // Another one is another entry.
    await page.getByRole('textbox', { name: 'Key' }).fill('correct');
    await page.getByRole('button', { name: 'Add' }).click();
    await eventually(() => entries.count()).toBe(2);
  });

  it('shows the details of the tokens in and out', async () => {
    const usage = {
      ...{ input_tokens: 9, output_tokens: 7, total_tokens: 16 },
      ...{ input_token_details: { cache_read: 4 }, output_token_details: { reasoning: 6 } },
    };
    const [run] = buildTrace('details', Date.now() - 60_000, {
      ...{ name: 'call', run_type: 'llm', until: 10, outputs: { usage_metadata: usage } },
    });
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, run ? [run] : []);
    await page.goto(`/runs/${run?.id}?tab=Metadata`);
    for (const name of ['Details of tokens in', 'Details of tokens out'])
      await page.getByRole('region', { name, exact: true }).waitFor();
  });

  it('shows images among the attachments of a run, and copies the run as JSON, curl and SDK calls', async () => {
    const png = Buffer.from(
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
      'base64',
    );
    const [run] = buildTrace('agent', Date.now() - 1000, { name: 'draw', until: 10, outputs: { exact: 1 } });
    const form = new FormData();
    const add = (name: string, value: string | Uint8Array<ArrayBuffer>, type: string) =>
      form.append(name, new Blob([value], { type: `${type}; length=${value.length}` }));
    add(`post.${run?.id}`, JSON.stringify(run), 'application/json');
    add(`attachment.${run?.id}.plot`, png, 'image/png');
    add(`attachment.${run?.id}.page`, '<script>alert(1)</script>', 'text/html');
    const headers = { 'x-api-key': signedIn.runlake.apiKey };
    const sent = await fetch(`${signedIn.runlake.url}/api/v1/runs/multipart`, { method: 'POST', headers, body: form });
    expect(sent.status).toBe(202);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.goto(`/runs/${run?.id}`);
    const image = detail().getByRole('img', { name: 'plot' });
    await eventually(() => image.evaluate((element: HTMLImageElement) => element.naturalWidth)).toBe(1);
    expect(await detail().getByRole('region', { name: 'Attachments' }).getByRole('img').count()).toBe(1);
    await detail().getByRole('link', { name: 'page' }).waitFor();
    await expectAccessible(page);
    const copy = async (what: string) => {
      await page.getByRole('button', { name: 'Copy ▾' }).click();
      await page.getByRole('button', { name: what, exact: true }).click();
      await page.getByRole('button', { name: 'Copied' }).waitFor();
      await page.keyboard.press('Escape');
      return page.evaluate(() => navigator.clipboard.readText());
    };
    expect(JSON.parse(await copy('Run as JSON'))).toMatchObject({ id: run?.id, outputs: { exact: 1 } });
    expect(await copy('curl')).toBe(
      `curl -H "x-api-key: $LANGSMITH_API_KEY" '${signedIn.runlake.url}/api/v1/runs/${run?.id}'`,
    );
    expect(await copy('JavaScript SDK')).toContain(`readRun('${run?.id}')`);
    expect(await copy('Python SDK')).toContain(`read_run("${run?.id}")`);
  });

  it('opens the links of the SDKs', async () => {
    const runs = buildAgentTrace('agent', Date.now() - 60_000, 2);
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, runs);
    const run = await askRunlake(signedIn.runlake, `/runs/${runs[1]?.id}`);
    const query = `project_id=${run.session_id}&trace_id=${run.trace_id}`;
    const { url } = await askRunlake(signedIn.runlake, `/api/v2/runs/${run.id}/url?${query}`);
    for (const address of [run.app_path as string, url as string]) {
      await page.goto(address);
      await eventually(() => selected().textContent()).toContain('retrieve context');
    }
  });

  it('is used by keyboard', async () => {
    await open(buildAgentTrace('agent', Date.now() - 60_000, 4));
    await page.keyboard.press('j');
    await eventually(() => selected().textContent()).toContain('retrieve context');
    await page.keyboard.press('ArrowLeft');
    await eventually(() => selected().getAttribute('aria-level')).toBe('1');
    await page.keyboard.press('ArrowLeft');
    await eventually(() => page.getByRole('treeitem').count()).toBe(1);
    await page.keyboard.press('e');
    await eventually(() => selected().textContent()).toContain('search_orders');
    await detail().getByText('timed out after 5000 ms').first().waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('retr');
    await eventually(() => page.getByRole('treeitem').count()).toBe(2);
  });

  it('grows while it is watched, until the trace ends', async () => {
    const runs = buildAgentTrace('agent', Date.now() - 60_000, 1);
    const [root, ...children] = runs as [SentRun, ...SentRun[]];
    const { end_time, outputs, ...begun } = root;
    await open([begun]);
    await page.getByText('running').waitFor();
    await detail().getByText('The run has not ended.').waitFor();
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, children.slice(0, 2));
    await eventually(() => page.getByRole('treeitem').count()).toBe(3);
    await sendRuns(signedIn.runlake.url, signedIn.runlake.apiKey, children.slice(2));
    const body = { end_time, outputs, trace_id: root.id, dotted_order: root.dotted_order };
    await askRunlake(signedIn.runlake, `/runs/${root.id}`, { method: 'PATCH', body });
    await eventually(() => page.getByRole('treeitem').count()).toBe(5);
    await detail().getByText('Here is what I found').waitFor();
    await eventually(() => page.getByText('running', { exact: true }).count()).toBe(0);
  });

  it('shows a trace of 10,000 runs, of which only those in view are rendered', async () => {
    const runs = buildLargeTrace('large', Date.now() - 300_000, 10_000);
    await open(runs);
    await page.getByText('10,000 runs').waitFor();
    expect(await page.getByRole('treeitem').count()).toBeLessThan(80);
    await page.getByRole('searchbox', { name: 'Find a run' }).fill('failed at 997');
    await eventually(() => page.getByRole('treeitem').count()).toBeLessThan(20);
    await page.getByRole('searchbox', { name: 'Find a run' }).fill('');
    await page.keyboard.press('Escape');
    await tree().focus();
    await page.keyboard.press('e');
    await eventually(() => selected().textContent()).toContain('error');
    // A link to a run deep in the tree scrolls to it.
    await page.goto(`/runs/${runs[9000]?.id}`);
    await eventually(() => selected().count()).toBe(1);
  });

  it('shows hostile values as text', async () => {
    const script = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
    const bidi = `safe\u202etxt.exe\u200b`;
    const long = 'lorem ipsum '.repeat(90_000);
    await open(
      buildTrace(script, Date.now() - 1000, {
        name: `${script}${bidi}`,
        until: 10,
        inputs: { messages: [{ role: script, content: `${script} ${bidi}` }], [script]: long },
        outputs: { big: long, exact: 12345678901234 },
        error: script,
        tags: [script, bidi],
        metadata: { [script]: script, thread_id: bidi },
      }),
    );
    await detail().getByText('alert(1)').first().waitFor();
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toContain('⟨U+202E⟩');
    for (const tab of ['Metadata', 'Feedback', 'Raw', 'Run']) await page.getByRole('tab', { name: tab }).click();
    await detail()
      .getByText(/Show all 1,080,000 characters/)
      .first()
      .waitFor();
    await page.goto('/projects');
    await page.getByRole('link', { name: 'alert(1)' }).click();
    await page.getByRole('table', { name: 'Runs' }).waitFor();
    expect(await page.locator('img[src=x]').count()).toBe(0);
    await page.goto('/usage?group=project');
    await page.getByText('alert(1)').first().waitFor();
  });

  it('keeps numbers that JavaScript cannot hold as they were sent', async () => {
    const numbers = ['9007199254740993', '1e-400', '1.2345678e-320', '-0.0', '0e5', '1e3', '1.50'];
    const [run] = buildTrace('exact', Date.now() - 1000, {
      name: 'exact',
      until: 10,
      outputs: { id: 'EXACT', note: '\u00000\u0000' },
    });
    const body = JSON.stringify({ post: [run], patch: [] }).replace('"EXACT"', `[${numbers}]`);
    const sent = await fetch(`${signedIn.runlake.url}/api/v1/runs/batch`, {
      method: 'POST',
      headers: { 'x-api-key': signedIn.runlake.apiKey, 'content-type': 'application/json' },
      body,
    });
    expect(sent.status).toBe(202);
    await page.goto(`/runs/${run?.id}`);
    const output = page.getByRole('region', { name: 'Output' });
    await output.getByText('9007199254740993').waitFor();
    await output.getByText('1e-400').waitFor();
    await output.getByRole('button', { name: 'Text' }).click();
    const text = (await output.locator('pre').textContent()) ?? '';
    // Other notations of a number that JavaScript can hold are not kept.
    expect(text.replace(/\s/g, '')).toBe(
      '{"id":[9007199254740993,1e-400,1.2345678e-320,0,0,1000,1.5],"note":"\\u00000\\u0000"}',
    );
  });

  it('adds feedback, and shares a trace that opens without a session', async () => {
    const runs = buildAgentTrace('agent', Date.now() - 60_000, 1);
    await open(runs);
    await page.getByRole('tab', { name: 'Feedback' }).click();
    await page.getByRole('textbox', { name: 'Key' }).fill('correct');
    await page.getByRole('textbox', { name: 'Score' }).fill('much');
    await page.getByRole('button', { name: 'Add' }).click();
    await page.getByText('The score must be a number.').waitFor();
    await page.getByRole('textbox', { name: 'Score' }).fill('0.5');
    await page.getByRole('button', { name: 'Add' }).click();
    await detail().getByRole('listitem').filter({ hasText: 'correct' }).waitFor();
    await page.getByRole('button', { name: 'Share' }).click();
    await page.getByRole('button', { name: 'Create a public link' }).click();
    const link = await page.getByRole('textbox', { name: 'Public link' }).inputValue();
    const stranger = await openContext(signedIn.browser, signedIn.runlake.url);
    const other = await stranger.newPage();
    watchPage(other);
    await other.goto(link);
    await eventually(() => other.getByRole('treeitem').count()).toBe(5);
    await other.getByRole('treeitem').filter({ hasText: 'plan' }).click();
    await other.getByRole('region', { name: 'Run', exact: true }).getByText('search_orders').waitFor();
    await expectAccessible(other);
    // The pages of other runs need a session.
    await other.getByRole('tab', { name: 'Metadata' }).click();
    const facts = other.getByRole('region', { name: 'Facts' });
    await facts.getByText('Parent').waitFor();
    expect(await facts.getByRole('link').count()).toBe(0);
    await page.getByRole('button', { name: 'Stop sharing' }).click();
    await page.getByText('The trace is not shared').waitFor();
    await other.reload();
    await other.getByRole('alert').waitFor();
    await stranger.close();
  });

  it('says that a run does not exist', async () => {
    await page.goto('/runs/00000000-0000-4000-8000-000000000000');
    await page.getByRole('alert').getByRole('heading', { name: 'Not found' }).waitFor();
    await expectAccessible(page);
  });
});

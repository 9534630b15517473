import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findFreePorts } from '../../infra/embedded/free-port.ts';
import { rootRun } from '../api/tools/send-runs.ts';
import { builtProgram } from '../built-program.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { pythonEnvironment } from './python/environment.ts';

const script = fileURLToPath(new URL('python/call_tools.py', import.meta.url));
const environment = pythonEnvironment('mcp');

let runlake: RunlakeProcess;
let toolsUrl: string;
beforeAll(async () => {
  if ('missing' in environment) return;
  const [port] = await findFreePorts(1);
  toolsUrl = `http://127.0.0.1:${port}/mcp`;
  runlake = await startRunlake({ environment: { RUNLAKE_TOOLS_PORT: String(port) } });
});
afterAll(async () => {
  await runlake?.remove();
});

async function send(path: string, body: object): Promise<void> {
  const headers = { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' };
  const answer = await fetch(runlake.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(await answer.text());
}

test.skipIf('missing' in environment)(
  "LangChain's Python adapters load and call the tools",
  async () => {
    if ('missing' in environment) return;
    await send('/runs/batch', { post: [rootRun('adapters', { inputs: { text: 'grüße 😀' } })] });
    await send('/repos', { repo_handle: 'greeting', is_public: false });
    const template = { lc: 1, type: 'constructor', id: ['langchain', 'prompts', 'prompt', 'PromptTemplate'] };
    const manifest = { ...template, kwargs: { template: 'Hello {name}', input_variables: ['name'] } };
    await send('/commits/-/greeting', { manifest });
    // The run is stored when it is read.
    await fetch(`${runlake.url}/sessions`, { headers: { 'x-api-key': runlake.apiKey } });
    const { stdout } = await promisify(execFile)(environment.python, [script, process.execPath, builtProgram], {
      env: {
        PATH: process.env.PATH,
        TOOLS_URL: toolsUrl,
        LANGSMITH_ENDPOINT: runlake.url,
        LANGSMITH_API_KEY: runlake.apiKey,
      },
      timeout: 90_000,
    });
    const expected = {
      tools: 19,
      arguments: expect.arrayContaining(['project_name', 'limit', 'page_number', 'trace_id', 'filter']),
      runs: expect.objectContaining({
        runs: [expect.objectContaining({ inputs: { text: 'grüße 😀' } })],
        page_number: 1,
        total_pages: 1,
      }),
      projects: { projects: [expect.objectContaining({ name: 'adapters' })] },
      failure: expect.stringContaining('Dataset none'),
      resources: 1,
      prompt: ['Hello Ada'],
    };
    expect(JSON.parse(stdout)).toEqual({ http: expected, stdio: expected });
  },
  120_000,
);

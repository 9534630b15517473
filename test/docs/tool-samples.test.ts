/**
 * The samples that the documentation tools return, run as a reader would: the variables of the `sh` block, then the
 * program. Python and TypeScript use workspaces of their own, because both create the same prompt and dataset.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findFreePorts } from '../../infra/embedded/free-port.ts';
import { pythonEnvironment } from '../e2e/python/environment.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';

const environment = pythonEnvironment();

const repository = fileURLToPath(new URL('../..', import.meta.url));
/** What the samples expect of the reader. */
const preludes = {
  python: 'def my_application(question):\n    return "4"\n',
  ts: "const myApplication = async (_: string) => '4';\n",
};

let runlake: RunlakeProcess;
let client: Client;
let folder: string;
beforeAll(async () => {
  const [port] = await findFreePorts(1);
  runlake = await startRunlake({ environment: { RUNLAKE_TOOLS_PORT: String(port) } });
  client = new Client({ name: 'test', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`), {
    requestInit: { headers: { 'LANGSMITH-API-KEY': runlake.apiKey } },
  });
  await client.connect(transport as Parameters<Client['connect']>[0]);
  folder = mkdtempSync(join(tmpdir(), 'runlake-samples-'));
  symlinkSync(join(repository, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
});
afterAll(async () => {
  await client?.close();
  await runlake?.remove();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

// biome-ignore lint/suspicious/noExplicitAny: each operation has its own response type.
async function ask(workspace: string, path: string, body?: object): Promise<any> {
  const headers = { 'x-api-key': runlake.apiKey, 'content-type': 'application/json', 'x-tenant-id': workspace };
  const answer = await fetch(`${runlake.url}/api/v1${path}`, {
    headers,
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
  });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

/** The variables that the `sh` block of `text` exports. */
function readVariables(text: string, workspace: string): Record<string, string> {
  const [, block = ''] = /^```sh\n([\s\S]*?)^```/m.exec(text) ?? [];
  const placeholders: Readonly<Record<string, string>> = { '<API_KEY>': runlake.apiKey, '<WORKSPACE_ID>': workspace };
  const pairs = [...block.matchAll(/(LANGSMITH_\w+)=(\S+)/g)];
  return Object.fromEntries(pairs.map(([, name, value = '']) => [name, placeholders[value] ?? value]));
}

async function runSample(tool: string, language: keyof typeof preludes, workspace: string): Promise<void> {
  const { result } = (await client.callTool({ name: tool, arguments: {} })).structuredContent as { result: string };
  const blocks = [...result.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))];
  expect(blocks).toHaveLength(1);
  const file = join(folder, `${tool}.${language === 'python' ? 'py' : 'ts'}`);
  writeFileSync(file, preludes[language] + blocks[0]?.[1]);
  const python = 'python' in environment ? environment.python : '';
  const [program, ...words] = language === 'python' ? [python, file] : [process.execPath, '--import', 'tsx', file];
  const env = { PATH: process.env.PATH, HOME: folder, ...readVariables(result, workspace) };
  expect(env).toMatchObject({ LANGSMITH_ENDPOINT: runlake.url, LANGSMITH_API_KEY: runlake.apiKey });
  await promisify(execFile)(program, words, { env, cwd: folder, timeout: 60_000 });
}

/** Examples that each language leaves after `create_dataset` and after `update_examples`. */
const counts = { python: [2, 1], ts: [1, 1] } as const;

describe.each(['python', 'ts'] as const)('the samples in %s', (language) => {
  it.skipIf(language === 'python' && 'missing' in environment)('work', { timeout: 240_000 }, async () => {
    const { id: workspace } = await ask('', '/workspaces', { display_name: `samples in ${language}` });
    const read = (path: string) => ask(workspace, path);
    const run = (tool: string) => runSample(tool, language, workspace);

    await run('push_prompt');
    expect(await read('/repos/-/my-prompt')).toMatchObject({
      repo: { description: 'Answers questions', num_commits: 1 },
    });

    await run('create_dataset');
    const [dataset] = await read('/datasets?name=questions');
    expect(dataset).toMatchObject({ description: 'Questions with answers', example_count: counts[language][0] });

    await run('update_examples');
    const examples = await read(`/examples?dataset=${dataset.id}`);
    expect(examples).toHaveLength(counts[language][1]);
    expect(examples[0].metadata).toMatchObject({ reviewed: true });

    await run('run_experiment');
    // Feedback is stored after its request.
    await expect
      .poll(async () => (await read(`/sessions?reference_dataset=${dataset.id}&include_stats=true`))[0], {
        timeout: 30_000,
      })
      .toMatchObject({
        name: expect.stringMatching(/^baseline/),
        feedback_stats: { correct: { n: counts[language][1] } },
      });
  });
});

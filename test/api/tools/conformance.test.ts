import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { nodeProgram, releases } from '../../docs/node-releases.ts';
import { forSuite } from '../../for-suite.ts';
import { installLocked } from '../../locked-packages.ts';
import { startToolServer } from './start-tools.ts';

/** The conformance suite of the Model Context Protocol, against the tool server. Its list of scenarios must be in one of these. */
const applicable = [
  'server-initialize',
  'ping',
  'tools-list',
  'resources-list',
  'prompts-list',
  'prompts-get-simple',
  'prompts-get-with-args',
  'server-sse-multiple-streams',
  'dns-rebinding-protection',
];

/** The other scenarios call tools, resources and prompts that only the example server of the suite has. */
const notApplicable: Readonly<Record<string, readonly string[]>> = {
  'calls a tool of the suite': [
    'tools-call-simple-text',
    'tools-call-image',
    'tools-call-audio',
    'tools-call-embedded-resource',
    'tools-call-mixed-content',
    'tools-call-with-logging',
    'tools-call-error',
    'tools-call-with-progress',
    'json-schema-2020-12',
  ],
  'calls a tool of the suite that closes its own stream; disconnects.test.ts has streams that are resumed': [
    'server-sse-polling',
  ],
  'calls a tool of the suite that asks the client; tools of Runlake do not': [
    'tools-call-sampling',
    'tools-call-elicitation',
    'elicitation-sep1034-defaults',
    'elicitation-sep1330-enums',
  ],
  'reads test://… of the suite; resources.test.ts reads those of Runlake': [
    'resources-read-text',
    'resources-read-binary',
    'resources-templates-read',
  ],
  'gets a prompt with an image or a resource; prompts of the hub are texts': [
    'prompts-get-embedded-resource',
    'prompts-get-with-image',
  ],
  'needs a capability that the server does not announce': [
    'logging-set-level',
    'completion-complete',
    'resources-subscribe',
    'resources-unsubscribe',
  ],
};
let proxy: Server;
let run: (...words: string[]) => Promise<{ readonly code: number; readonly output: string }>;

const server = forSuite(() => startToolServer());
beforeAll(async () => {
  const packages = await installLocked(new URL('clients', import.meta.url).pathname, 'mcp-clients');
  // The suite needs a newer release of Node than Runlake.
  const release = releases.find(({ version }) => version.startsWith('22.'));
  const node = (release && (await nodeProgram(release))) ?? process.execPath;
  const options = { env: { PATH: process.env.PATH, HOME: '/nonexistent' }, timeout: 60_000 };
  run = (...words) =>
    promisify(execFile)(node, [`${packages}/node_modules/.bin/conformance`, ...words], options).then(
      ({ stdout, stderr }) => ({ code: 0, output: stdout + stderr }),
      (error: { code: number; stdout: string; stderr: string }) => ({
        code: error.code,
        output: error.stdout + error.stderr,
      }),
    );
  const [key] = server.owner.workspaceKeys;
  // The suite sends no headers, so a proxy adds the key.
  proxy = createServer((request, response) => {
    const headers = { ...request.headers, 'langsmith-api-key': key };
    const sent = httpRequest(server.url + request.url, { method: request.method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 0, answer.headers);
      answer.pipe(response);
    });
    request.pipe(sent);
    response.once('close', () => sent.destroy());
    sent.on('error', () => response.destroy());
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const prompts = { test_simple_prompt: 'A prompt.', test_prompt_with_arguments: 'With {arg1} and {arg2}' };
  for (const [name, template] of Object.entries(prompts)) {
    await server.api.ask(key, 'POST', '/repos', { repo_handle: name, is_public: false });
    const input_variables = [...template.matchAll(/\{(\w+)\}/g)].map(([, variable]) => variable);
    const id = ['langchain', 'prompts', 'prompt', 'PromptTemplate'];
    const manifest = { lc: 1, type: 'constructor', id, kwargs: { template, input_variables } };
    expect((await server.api.ask(key, 'POST', `/commits/-/${name}`, { manifest })).status).toBe(201);
  }
}, 240_000);
afterAll(async () => {
  proxy?.closeAllConnections();
  proxy?.close();
});

it.each(applicable)('the conformance suite: %s', { timeout: 60_000 }, async (scenario) => {
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/mcp`;
  const { code, output } = await run('server', '--url', url, '--scenario', scenario);
  expect(code, output).toBe(0);
});

it('each scenario of the suite for servers is run, or has a reason', async () => {
  const { output } = await run('list');
  const [ofServers = ''] = output.split('Client scenarios');
  const scenarios = [...ofServers.matchAll(/^ {2}- (\S+)/gm)].map(([, name]) => name);
  expect(scenarios.sort()).toEqual([...applicable, ...Object.values(notApplicable).flat()].sort());
});

it('announces only what it offers', async () => {
  const client = await server.connect();
  expect(client.getServerCapabilities()).toEqual({ tools: {}, resources: {}, prompts: {} });
});

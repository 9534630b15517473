import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test, vi } from 'vitest';
import { healthText } from '../../../api/tools/operations.ts';
import { findFreePorts } from '../../../infra/embedded/free-port.ts';
import { folderForTest } from '../../folders.ts';
import { isLinuxRoot } from '../../house/prerequisites.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { until } from '../../infra/until.ts';
import { startRunlake } from '../../runlake-process.ts';
import { runCommand } from './run-command.ts';

vi.setConfig({ testTimeout: 240_000 });

/** Checks of the agent server and the tool server in `runlake doctor`. */

const project = (name: string) =>
  fileURLToPath(new URL(`../../agents/projects/${name}/langgraph.json`, import.meta.url));

async function doctor(agentsFile: string, more: Record<string, string> = {}) {
  const [port] = await findFreePorts(1);
  const environment = {
    RUNLAKE_DATA_DIR: folderForTest(),
    RUNLAKE_AGENTS_FILE: agentsFile,
    RUNLAKE_AGENTS_PORT: String(port),
  };
  const { code, text } = await runCommand(['doctor'], { ...environment, ...more });
  return { code, text };
}

test('lists each graph that fails to load with its error, and each graph that loads', async () => {
  const { code, text } = await doctor(project('faulty'));
  expect(code).toBe(1);
  expect(text).toMatch(/ok {5}Agents file: .*langgraph\.json names 7 graphs/);
  const account =
    process.getuid?.() === 0 ? /a user id of its own/ : /the user id of Runlake, .* as trusted as the operator/;
  expect(text).toMatch(new RegExp(`ok {5}Graph code: has ${account.source}`));
  expect(text).toMatch(/ok {5}Graph good: can be used/);
  expect(text).toMatch(/error {2}Graph missing: .*none\.js cannot be loaded.*\n {7}→ Correct the module/);
  expect(text).toMatch(/error {2}Graph unnamed: .*'nothing'.* does not exist/);
  expect(text).toMatch(/error {2}Graph ending: .*ended the process while it was imported/);
  expect(text).toMatch(/ok {5}Library: @langchain\/langgraph is 1\.x/);
  expect(text).toMatch(/ok {5}Agent port: 127\.0\.0\.1:\d+ is free/);
});

test('reports errors of the agents file', async () => {
  const path = join(folderForTest(), 'langgraph.json');
  expect((await doctor(path)).text).toMatch(
    /error {2}Agents file: .*\n {7}→ Correct the file, or set RUNLAKE_AGENTS_FILE/,
  );
  writeFileSync(path, '{"graphs":{"a":7}}');
  expect((await doctor(path)).text).toMatch(/error {2}Agents file: .*graphs/);
  writeFileSync(path, '{"graphs":{"a":"./a.js"},"env":{"LANGGRAPH_CONFIG":"{"}}');
  expect((await doctor(path)).text).toMatch(/error {2}Agents file: .*env\.LANGGRAPH_CONFIG: it is not JSON/);
});

test('reports an untested library version and a port in use', async () => {
  const path = folderForTest();
  const library = join(path, 'node_modules', '@langchain', 'langgraph');
  mkdirSync(library, { recursive: true });
  writeFileSync(join(library, 'package.json'), '{"name":"@langchain/langgraph","version":"0.2.1"}');
  symlinkSync(fileURLToPath(new URL('../../agents/projects/store/embed.js', import.meta.url)), join(path, 'embed.js'));
  writeFileSync(join(path, 'graph.js'), 'export const graph = { lg_is_pregel: true };');
  writeFileSync(
    join(path, 'langgraph.json'),
    JSON.stringify({ graphs: { one: './graph.js:graph' }, store: { index: { embed: './embed.js:embed', dims: 7 } } }),
  );
  const taken = createServer();
  const port = await listenOnLoopback(taken);
  onTestFinished(() => void taken.close());
  const { text } = await doctor(join(path, 'langgraph.json'), { RUNLAKE_AGENTS_PORT: String(port) });
  expect(text).toMatch(/error {2}Library: .* has version 0\.2\.1\n {7}→ Install @langchain\/langgraph 1\.x/);
  expect(text).toMatch(/error {2}Agent port: .*\n {7}→ Set RUNLAKE_AGENTS_PORT/);
  expect(text).toMatch(/error {2}Store index: .* a vector of 3 dimensions, not 7\.\n {7}→ Set store\.index\.dims to/);
});

test('reports the port of the tool server: free, in use, and in use by the tool server', async () => {
  const isOurs = { now: false };
  const taken = createHttpServer((_request, response) => response.end(isOurs.now ? healthText : 'other'));
  const port = await listenOnLoopback(taken);
  onTestFinished(() => void taken.close());
  const [free] = await findFreePorts(1);
  const check = async (number = port) =>
    (await runCommand(['doctor'], { RUNLAKE_DATA_DIR: folderForTest(), RUNLAKE_TOOLS_PORT: String(number) })).text;
  expect(await check(free)).toMatch(/ok {5}Tool port: 127\.0\.0\.1:\d+ is free/);
  expect(await check()).toMatch(/error {2}Tool port: .*\n {7}→ Set RUNLAKE_TOOLS_PORT to another port/);
  isOurs.now = true;
  expect(await check()).toContain(`ok     Tool server: answers at http://127.0.0.1:${port}`);
});

test('reports an embedder that cannot be loaded', async () => {
  const path = folderForTest();
  writeFileSync(join(path, 'graph.js'), 'export const graph = { lg_is_pregel: true };');
  const file = { graphs: { one: './graph.js:graph' }, store: { index: { embed: './none.js:embed', dims: 3 } } };
  writeFileSync(join(path, 'langgraph.json'), JSON.stringify(file));
  const { code, text } = await doctor(join(path, 'langgraph.json'));
  expect(code).toBe(1);
  expect(text).toMatch(/error {2}Store index: .*none\.js.*\n {7}→ Correct the embedder in store\.index\.embed/);
});

test('reports a running instance as healthy: notifications arrive, and stored vectors have the dimensions of the index', async () => {
  const [port] = await findFreePorts(1);
  const agents = {
    RUNLAKE_AGENTS_FILE: project('store'),
    RUNLAKE_AGENTS_PORT: String(port),
    RUNLAKE_AGENTS_WORKERS: '1',
    RUNLAKE_AGENTS_ISOLATION: 'off',
  };
  const runlake = await startRunlake({ environment: agents });
  onTestFinished(() => runlake.remove());
  // The agent server responds a moment after the API.
  await until('the agent server responds', () => /runs agents at/.test(runlake.output()));
  await until('startup logs the graph module', () =>
    /Graph code has .*; in Postgres it can access only rows of its deployment/.test(runlake.output()),
  );
  // Without the settings of the process, and from another folder.
  const { code, text } = await runCommand(['doctor'], { RUNLAKE_DATA_DIR: runlake.dataDir });
  expect(text).not.toMatch(/^error/m);
  expect(code).toBe(0);
  expect(text).toMatch(/ok {5}Process: runlake runs as process \d+ since .*; this report describes it\n/);
  // Not what this user would get: the process runs with RUNLAKE_AGENTS_ISOLATION=off.
  expect(text).toMatch(/ok {5}Graph code: has the user id of Runlake/);
  expect(text).toContain(`ok     Agent server: answers at http://127.0.0.1:${port}`);
  for (const part of ['Graph notes', 'Store index', 'Notices', 'Stored vectors', 'Schema']) {
    expect(text).toMatch(new RegExp(`ok {5}${part}: `));
  }
});

test.runIf(isLinuxRoot('another user'))('does not execute the graph code of an instance of another user', async () => {
  const runlake = await startRunlake({
    environment: { RUNLAKE_AGENTS_FILE: project('store'), RUNLAKE_AGENTS_PORT: '0' },
  });
  onTestFinished(() => runlake.remove());
  const file = join(runlake.dataDir, 'run.json');
  writeFileSync(file, readFileSync(file, 'utf8').replace(/"uid": 0,/, '"uid": 4711,'));
  const { code, text } = await runCommand(['doctor'], { RUNLAKE_DATA_DIR: runlake.dataDir });
  expect(code).toBe(0);
  expect(text).toMatch(/note {3}Graphs: user 4711 executes them/);
  expect(text).not.toContain('Graph notes');
});

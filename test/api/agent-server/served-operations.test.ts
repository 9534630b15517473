import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { agentOperations } from '../../../api/agent-server/operations.ts';
import { servedOperations } from '../../../api/agent-server/served-operations.ts';
import { openAgents } from '../../../api/command-line/start-agents.ts';

const off = (http: Parameters<typeof servedOperations>[0]) => {
  const left = new Set(servedOperations(http));
  return agentOperations.filter((operation) => !left.has(operation)).map(({ path }) => path);
};

it.each([
  [{}, /^$/],
  [{ disable_assistants: true }, /^\/assistants/],
  [{ disable_threads: true }, /^\/threads/],
  [{ disable_runs: true }, /\/(?:runs|commands|stream)/],
  [{ disable_store: true }, /^\/store/],
  [{ disable_meta: true }, /^\/(?:info|metrics|internal)/],
])('%j turns off what it names, and nothing else', (http, paths) => {
  for (const path of off(http)) expect(path).toMatch(paths);
  if (Object.keys(http).length > 0) expect(off(http)).not.toHaveLength(0);
  expect(off(http)).not.toContain('/ok');
});

it.each(['app', 'cors'])('http.%s, which is not built, keeps the server from starting', async (name) => {
  const folder = await mkdtemp(join(tmpdir(), 'graphs-'));
  try {
    const agentsFile = join(folder, 'langgraph.json');
    const http = { [name]: name === 'app' ? './app.ts:app' : { allow_origins: ['*'] } };
    await writeFile(agentsFile, JSON.stringify({ graphs: { a: './a.ts:a' }, http }));
    const opening = openAgents({ config: { agentsFile }, stores: {} } as never, undefined as never);
    await expect(opening).rejects.toMatchObject({
      code: 'GRAPHS_FILE_INVALID',
      message: expect.stringContaining(`http.${name}`),
    });
  } finally {
    await rm(folder, { recursive: true });
  }
});

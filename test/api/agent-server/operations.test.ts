import { expect, it } from 'vitest';
import { agentOperations, listServedOperations } from '../../../api/agent-server/operations.ts';

const disabledPaths = (http: Parameters<typeof listServedOperations>[0]) => {
  const served = new Set(listServedOperations(http));
  return agentOperations.filter((operation) => !served.has(operation)).map(({ path }) => path);
};

it.each([
  [{}, /^$/],
  [{ disable_assistants: true }, /^\/assistants/],
  [{ disable_threads: true }, /^\/threads/],
  [{ disable_runs: true }, /\/(?:runs|commands|stream)/],
  [{ disable_store: true }, /^\/store/],
  [{ disable_meta: true }, /^\/(?:info|metrics|internal)/],
  [
    {
      disable_assistants: true,
      disable_threads: true,
      disable_runs: true,
      disable_store: true,
      disable_meta: true,
      disable_a2a: true,
      disable_mcp: true,
    },
    /^\/(?!ok)/,
  ],
])('%j disables only the operations that it names', (http, paths) => {
  for (const path of disabledPaths(http)) expect(path).toMatch(paths);
  if (Object.keys(http).length > 0) expect(disabledPaths(http)).not.toHaveLength(0);
  expect(disabledPaths(http)).not.toContain('/ok');
});

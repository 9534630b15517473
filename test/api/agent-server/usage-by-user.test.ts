import { Client } from '@langchain/langgraph-sdk';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { operations } from '../../../api/main/operations.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { createCronRun } from '../../../pipelines/agents/crons/fire-cron.ts';
import { type Cron, searchCrons } from '../../../pipelines/agents/crons/write-crons.ts';
import { runRollUp } from '../../../pipelines/usage/rollup.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { startAgentServer } from './start-agent-server.ts';

/** With custom authentication of a project, usage by user counts its users separately. */

const agent = forSuite(() => startAgentServer({ project: 'auth' }));
let main: Awaited<ReturnType<typeof buildServer>>;
beforeAll(async () => {
  const config = agent.services.agents.config as Config;
  main = await buildServer({ config, services: agent.answering, logger, operations });
}, 120_000);
afterAll(async () => {
  await main?.drain();
});

const clientOf = (name: string) => {
  const defaultHeaders = { authorization: `Bearer secret-${name}` };
  return new Client({ apiUrl: agent.url, apiKey: null as never, defaultHeaders, callerOptions: { maxRetries: 0 } });
};

async function usageByUser(): Promise<unknown[]> {
  await runRollUp(agent.answering);
  const asked = `start_time=2020-01-01&end_time=2100-01-01&group_by=user&workspace_ids=${agent.owner.workspaceIds[0]}`;
  const answer = await main.inject({
    url: `/api/v1/orgs/current/billing/granular-usage?${asked}`,
    headers: { 'x-api-key': agent.owner.adminKey },
  });
  const { usage } = answer.json() as {
    usage: { traces: number; dimensions: { user_id: string; user_email: string } }[];
  };
  return usage.map(({ traces, dimensions }) => [dimensions.user_email, traces]).sort();
}

it('is counted by identity, for runs of users and of their crons', async () => {
  for (const name of ['ada', 'ada', 'ben']) await clientOf(name).runs.wait(null, 'echo', { input: {} });
  await clientOf('ben').crons.create('echo', { schedule: '0 0 1 1 *', input: {} });
  const { database, owner } = agent;
  const page = { sortBy: 'cron_id', sortOrder: 'asc', limitRows: 1, offsetRows: 0 } as const;
  const [cron] = await searchCrons(database, owner.id, {}, page);
  await database.transaction((tx) => createCronRun(tx, owner.id, cron as Cron, agent.services.agents));
  agent.services.agents.wake();
  const counted = [
    ['ada', 2],
    ['ben', 2],
  ];
  await expect.poll(usageByUser, { timeout: 30_000 }).toEqual(counted);
});

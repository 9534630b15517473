import { expect, it } from 'vitest';
import { type LogStage, openRevisionLog } from '../../../pipelines/deployments/revision-logs.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { addOrganization, startApi } from '../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const deployment = {
  name: 'logged',
  source: 'github',
  // The default type of `langgraph deploy`.
  source_config: { repo_url: 'https://example.com/repo.git', deployment_type: 'dev_zero' },
  source_revision_config: { repo_ref: 'main', langgraph_config_path: 'langgraph.json' },
  secrets: [],
};

it('reads logs as `langgraph deploy logs` does', async () => {
  const [key] = acme.workspaceKeys;
  const { status, body: made } = await api.ask(key, 'POST', '/v2/deployments', deployment);
  expect([status, made.source_config.deployment_type]).toEqual([201, 'dev_zero']);
  const revisionId = made.latest_revision_id;
  const write = async (stage: LogStage, text: string) => {
    const log = openRevisionLog({ database: api.database, logger }, { revisionId, stage, values: [] });
    log.write(text);
    await log.flush();
  };
  await write('build', 'installed');
  for (const text of ['first', 'Second', 'third']) await write('run', text);
  const read = async (path: string, body: object) => {
    const answer = await api.ask(key, 'POST', `/api-host/v1/projects/${made.id}/${path}`, body);
    return answer.status === 200 ? answer.body.logs : answer.status;
  };
  const texts = async (body: object, path = 'deploy_logs') =>
    (await read(path, body)).map(({ message }: { message: string }) => message);
  // Without a revision, as without the option --revision-id.
  expect(await texts({})).toEqual(['first', 'Second', 'third']);
  expect(await texts({ order: 'desc', limit: 2 })).toEqual(['third', 'Second']);
  expect(await texts({ limit: 500, level: 'INFO' }, `revisions/${revisionId}/build_logs`)).toEqual(['installed']);
  expect(await texts({ query: 'SECOND' }, `revisions/${revisionId}/deploy_logs`)).toEqual(['Second']);
  // With --follow, the command asks for entries from the time of the last one, and skips those whose id it knows.
  const [first, second, third] = await read('deploy_logs', {});
  expect(new Set([first.id, second.id, third.id]).size).toBe(3);
  expect(await read('deploy_logs', { start_time: second.timestamp })).toEqual([second, third]);
  expect(await read('deploy_logs', { end_time: second.timestamp, order: 'desc', limit: 1 })).toEqual([second]);
  expect(await read('deploy_logs', { offset: third.id, order: 'desc' })).toEqual([second, first]);
  expect(await read('deploy_logs', { level: 'ERROR' })).toBe(422);
});

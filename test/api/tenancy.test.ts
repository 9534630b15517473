import { randomUUID } from 'node:crypto';
import type { InjectOptions } from 'fastify';
import { beforeAll, describe, expect, it } from 'vitest';
import { operations } from '../../api/main/operations.ts';
import { hashKey } from '../../pipelines/tenants/key-format.ts';
import { runRollUp } from '../../pipelines/usage/rollup.ts';
import { forSuite } from '../for-suite.ts';
import { pickSome } from '../house/extent.ts';
import { addExport, type ExportUnderTest } from './add-export.ts';
import { type Attempt, closed, own, textFields } from './attempt.ts';
import { addDatasets, type DatasetVictim, datasetAttempts } from './dataset-attempts.ts';
import { addDeployment, attackAddress, type DeploymentVictim, deploymentAttempts } from './deployment-attempts.ts';
import { exportAttempts } from './export-attempts.ts';
import { keyAttempts } from './key-attempts.ts';
import { addOAuth, type OAuthVictim, oauthAttempts, oauthUrls } from './oauth-attempts.ts';
import { addPrompts, type PromptVictim, promptAttempts } from './prompt-attempts.ts';
import { evaluatorAttempts, type QueueVictim, queueAttempts } from './queue-attempts.ts';
import { feedbackAttempts, otlp, type RunVictim, runAttempts } from './run-attempts.ts';
import { type SessionHeaders, sessionAttempts, startSession } from './session-attempts.ts';
import { addOrganization, startApi } from './start-api.ts';
import { usageAttempts } from './usage-attempts.ts';
import { addTags, type WorkspaceVictim, workspaceAttempts } from './workspace-attempts.ts';

/**
 * No operation gives access to another workspace or organisation. The victim is the first workspace of the organisation
 * zebra: everything in it contains the word `okapi`, everything of the organisation `zebra`. Two strangers, the admin of
 * another organisation and the key of zebra's second workspace, call every operation with the victim's ids. No response
 * may contain the victim's words, and at the end the victim is unchanged.
 */
interface Victim
  extends ExportUnderTest,
    RunVictim,
    DatasetVictim,
    PromptVictim,
    QueueVictim,
    WorkspaceVictim,
    DeploymentVictim,
    OAuthVictim {
  readonly workspaceId: string;
  readonly keyId: string;
  readonly feedbackId: string;
  readonly evaluatorId: string;
  readonly priceId: string;
}

const now = new Date().toISOString();

/** Returns a run that names the ids of the victim. */
const run = (victim: Victim, more: object = {}) => ({
  id: victim.runId,
  trace_id: victim.runId,
  dotted_order: `${now.replace(/[-:.]/g, '').replace('Z', '000Z')}${victim.runId}`,
  name: 'stolen',
  run_type: 'chain',
  start_time: now,
  inputs: { stolen: true },
  ...more,
});

const multipart = (victim: Victim) => {
  const body = JSON.stringify(run(victim, { session_id: victim.projectId }));
  return [
    '--cut',
    `Content-Disposition: form-data; name="post.${victim.runId}"`,
    `Content-Type: application/json; length=${Buffer.byteLength(body)}`,
    '',
    body,
    '--cut--',
    '',
  ].join('\r\n');
};

const buildTraceDeletion = ({ projectId, runId }: Victim) => ({ session_id: projectId, trace_ids: [runId] });

/** One entry per operation that needs a key. An operation without an entry fails the test. */
const attempts: Readonly<Record<string, (victim: Victim) => Attempt>> = {
  ...runAttempts,
  ...datasetAttempts,
  ...sessionAttempts,
  ...promptAttempts,
  ...queueAttempts,
  ...evaluatorAttempts,
  ...workspaceAttempts,
  ...keyAttempts,
  ...oauthAttempts,
  getSettings: () => ({ url: '/settings', answers: own }),
  getWorkspaceStats: () => ({ url: '/workspaces/current/stats', answers: own }),
  setHandle: () => ({ url: '/settings/handle', payload: { tenant_handle: 'okapi' }, answers: [403, 409] }),
  listOrganizations: () => ({ url: '/orgs', answers: own }),
  createOrganization: () => ({ url: '/orgs', payload: { display_name: 'stolen' }, answers: [403] }),
  deleteOrganization: () => ({ url: `/orgs/${zebra.id}`, answers: [403] }),
  getCurrentOrganization: () => ({ url: '/orgs/current', answers: own }),
  getOrganizationInfo: () => ({ url: '/orgs/current/info', answers: own }),
  listPermissions: () => ({ url: '/orgs/permissions', answers: own }),
  listMembers: () => ({ url: '/orgs/current/members', answers: own }),
  deleteMember: () => ({ url: `/orgs/current/members/${zebra.userId}` }),
  listWorkspaces: () => ({ url: '/workspaces?include_deleted=true', answers: own }),
  createWorkspace: ({ workspaceId }) => ({
    url: '/workspaces',
    payload: { id: workspaceId, display_name: 'stolen' },
    answers: [403, 409],
  }),
  getWorkspace: ({ workspaceId }) => ({ url: `/workspaces/${workspaceId}` }),
  updateWorkspace: ({ workspaceId }) => ({ url: `/workspaces/${workspaceId}`, payload: { display_name: 'stolen' } }),
  deleteWorkspace: ({ workspaceId }) => ({ url: `/workspaces/${workspaceId}` }),
  createRun: (victim) => ({
    url: '/runs',
    payload: run(victim, { session_id: victim.projectId }),
    answers: [400, 404, 422],
  }),
  updateRun: ({ runId }) => ({ url: `/runs/${runId}`, payload: { error: 'stolen' } }),
  createRunBatch: (victim) => ({
    url: '/runs/batch',
    // The first run names the victim's project. The second has only the victim's run id, and becomes a run of the
    // stranger.
    payload: {
      post: [run(victim, { session_id: victim.projectId }), run(victim)],
      patch: [run(victim, { end_time: now })],
    },
    answers: [202, 400],
  }),
  createRunMultipart: (victim) => ({
    url: '/runs/multipart',
    headers: { 'content-type': 'multipart/form-data; boundary=cut' },
    payload: multipart(victim),
    answers: [400, 404, 422],
  }),
  createOtlpTraces: ({ projectId }) => ({
    url: '/otel/v1/traces',
    headers: { 'content-type': 'application/json' },
    payload: otlp(projectId),
    answers: [400, 404, 422],
  }),
  // Must be the last of the run operations: the run that the stranger created under the same id belongs to the
  // stranger.
  getRun: ({ runId }) => ({ url: `/runs/${runId}`, answers: [200, 404] }),
  queryRuns: ({ projectId, runId }) => ({
    url: '/runs/query',
    payload: { session: [projectId], filter: `eq(id, "${runId}")`, tree_filter: 'search("okapi")' },
    answers: [200, 404],
  }),
  deleteRuns: (victim) => ({ url: '/runs/delete', payload: buildTraceDeletion(victim) }),
  deleteTraces: (victim) => ({ url: '/runs/delete/traces', payload: buildTraceDeletion(victim) }),
  keepTraces: (victim) => ({ url: '/runs/keep', payload: buildTraceDeletion(victim) }),
  ...feedbackAttempts,
  ...usageAttempts,
  ...exportAttempts,
  ...deploymentAttempts,
};

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const zebra = forSuite(() => addOrganization(api.database, 'zebra'));
const stranger = forSuite(() => addOrganization(api.database, 'stranger'));
let victim: Victim;
let before: unknown;
/** Headers of the stranger's session. */
let session: SessionHeaders;

const guarded = operations.filter(({ access }) => !('public' in access));
const table = guarded.map((operation) => [operation.operationId, operation] as const);
/** Operations after which everything of the victim is read. After all operations, each run reads it. */
const readAfter = new Set(
  pickSome(
    guarded.filter(({ access }) => !('permission' in access && access.permission.endsWith(':read'))),
    1 / 10,
  ),
);

function ask(method: string, { url, payload, headers }: Omit<Attempt, 'answers'>, key: string | undefined, more = {}) {
  return api.server.inject({
    method: method as NonNullable<InjectOptions['method']>,
    url,
    ...(payload === undefined ? {} : { payload }),
    headers: { ...headers, ...(key === undefined ? {} : { 'x-api-key': key }), ...more },
  });
}

/** Reads all data of the victim with its own key. */
async function readVictimData(): Promise<unknown> {
  const [key] = zebra.workspaceKeys;
  const read = async (url: string) => (await ask('GET', { url }, key)).json();
  return {
    workspace: await read(`/workspaces/${victim.workspaceId}`),
    projects: await read('/sessions'),
    keys: (await read('/api-key')).map((each: object) => ({ ...each, last_used_at: null })),
    run: await read(`/runs/${victim.runId}`),
    shares: [await read(`/runs/${victim.runId}/share`), await read(`/datasets/${victim.datasetId}/share`)],
    feedback: await read('/feedback'),
    links: await read(`/feedback/tokens?run_id=${victim.runId}`),
    exports: (await read('/bulk-exports')).map((each: object) => ({ ...each, progress: null })),
    exportRuns: await read(`/bulk-exports/${victim.exportId}/runs`),
    datasets: await read('/datasets'),
    examples: await read(`/examples?dataset=${victim.datasetId}`),
    versions: await read(`/datasets/${victim.datasetId}/versions`),
    comparisons: await read(`/datasets/${victim.datasetId}/comparative`),
    prompts: await read('/repos?with_latest_manifest=true'),
    commits: await read(`/commits/${victim.prompt}`),
    tags: await read(`/repos/${victim.prompt}/tags`),
    directory: await read(`/v1/platform/hub/repos/${victim.agent}/directories`),
    queues: await read('/annotation-queues'),
    evaluators: await read('/v1/platform/evaluators'),
    limits: await read('/usage-limits'),
    secrets: await read('/workspaces/current/secrets'),
    taggings: await read('/workspaces/current/taggings'),
    oauth: await Promise.all(oauthUrls.map(read)),
    prices: (await read('/model-price-map')).slice(0, 2),
    configs: await read('/feedback-configs'),
    queueRuns: await read(`/annotation-queues/${victim.queueId}/runs`),
    deployments: await read('/v2/deployments'),
    revisions: await read(`/v2/deployments/${victim.deploymentId}/revisions`),
    usage: await read(attempts.getGranularUsage?.(victim).url ?? ''),
  };
}

beforeAll(async () => {
  const [workspaceId] = zebra.workspaceIds;
  const [key] = zebra.workspaceKeys;
  await ask('PATCH', { url: `/workspaces/${workspaceId}`, payload: { display_name: 'okapi' } }, zebra.adminKey);
  const project = await ask('POST', { url: '/sessions', payload: { name: 'okapi', description: 'okapi' } }, key);
  const prompts = await addPrompts((method, request) => ask(method, request, zebra.adminKey));
  const config = {
    feedback_key: 'victims',
    feedback_config: { type: 'categorical', categories: [{ value: 1, label: 'okapi' }] },
  };
  await ask('POST', { url: '/feedback-configs', payload: config }, key);
  const code = { name: 'okapi', type: 'code', code_evaluator: { code: 'okapi' } };
  const evaluator = await ask('POST', { url: '/v1/platform/evaluators', payload: code }, key);
  const monthly = { limit_type: 'monthly_traces', limit_value: 1_000_000 };
  const limit = await ask('PUT', { url: '/usage-limits', payload: monthly }, zebra.adminKey);
  const price = { name: 'okapi', match_pattern: 'okapi', prompt_cost: '0.1', completion_cost: '0.2' };
  const modelPrice = await ask('POST', { url: '/model-price-map', payload: price }, key);
  const queue = await ask('POST', { url: '/annotation-queues', payload: { name: 'okapi' } }, key);
  const [row] = await api.database.query<{ id: string }>('SELECT id FROM api_keys WHERE hash = $1', [hashKey(key)]);
  await api.database.execute("UPDATE api_keys SET description = 'okapi' WHERE id = $1", [row?.id]);
  victim = {
    workspaceId,
    projectId: project.json().id,
    keyId: row?.id ?? '',
    runId: randomUUID(),
    feedbackId: randomUUID(),
    ...(await addDatasets(api, { key, workspaceId, projectId: project.json().id, word: 'okapi' })),
    ...prompts,
    queueId: queue.json().id,
    ...{ queueRunId: '', userId: zebra.userId },
    usageLimitId: limit.json().id,
    ...(await addTags((url, payload) => ask('POST', { url, payload }, key), project.json().id)),
    ...(await addOAuth(api, zebra)),
    evaluatorId: evaluator.json().evaluator.id,
    priceId: modelPrice.json().id,
    ...(await addDeployment((url, payload) => ask('POST', { url, payload }, key), 'okapi')),
    ...(await addExport(api.database, { workspaceId, projectId: project.json().id, word: 'okapi' })),
  };
  const payload = run(victim, { session_id: victim.projectId, name: 'okapi', inputs: { secret: 'okapi' } });
  expect((await ask('POST', { url: '/runs', payload }, key)).statusCode).toBe(202);
  const feedback = { id: victim.feedbackId, run_id: victim.runId, key: 'okapi', comment: 'okapi' };
  expect((await ask('POST', { url: '/feedback', payload: feedback }, key)).statusCode).toBe(200);
  const link = { run_id: victim.runId, feedback_key: 'okapi' };
  expect((await ask('POST', { url: '/feedback/tokens', payload: link }, key)).statusCode).toBe(200);
  await api.settled();
  const queued = await ask('POST', { url: `/annotation-queues/${victim.queueId}/runs`, payload: [victim.runId] }, key);
  victim = { ...victim, queueRunId: queued.json()[0].id };
  // No stranger may end the sharing of the victim's trace.
  expect((await ask('PUT', { url: `/runs/${victim.runId}/share` }, key)).statusCode).toBe(200);
  await runRollUp(api.services);
  session = await startSession(api.server, stranger.adminKey);
  before = await readVictimData();
  expect(before).toMatchObject({
    workspace: { display_name: 'okapi' },
    projects: [{ name: 'okapi' }],
    deployments: { resources: [{ name: 'okapi', secrets: [{ name: 'OKAPI' }] }] },
    revisions: { resources: [{ status: 'CREATING' }] },
    datasets: [{ name: 'okapi', description: 'okapi' }],
    examples: [{ inputs: { secret: 'okapi' } }],
    versions: [{ tags: ['latest'] }],
    comparisons: [{ name: 'okapi', experiments_info: [{ name: 'okapi' }] }],
    prompts: { repos: [{ description: 'okapi', latest_commit_manifest: { manifest: { secret: 'okapi' } } }] },
    commits: { total: 1 },
    queues: [{ name: 'okapi', total_runs: 1 }],
    evaluators: { evaluators: [{ name: 'okapi' }] },
    prices: [{ name: 'okapi', prompt_cost: '0.1' }, { tenant_id: null }],
    configs: [{ feedback_config: { categories: [{ label: 'okapi' }] } }],
    queueRuns: [{ name: 'okapi', inputs: { secret: 'okapi' } }],
    tags: [{ tag_name: 'okapi' }],
    limits: [{ limit_value: 1_000_000 }],
    secrets: [{ key: 'VICTIM' }],
    oauth: [[{ name: 'zebra' }], [{ provider_account_label: 'okapi' }], { data: [{ scopes: ['okapi'] }] }],
    taggings: [{ tag_key: 'okapi', resources: { projects: [{ resource_name: 'okapi' }] } }],
    directory: { files: { 'AGENTS.md': { content: 'okapi' } } },
    keys: [{ description: 'okapi' }],
    run: { name: 'okapi', inputs: { secret: 'okapi' }, feedback_stats: { okapi: { n: 1 } } },
    shares: [{ share_token: expect.any(String) }, { share_token: expect.any(String) }],
    feedback: [{ key: 'okapi', comment: 'okapi' }],
    links: [{ feedback_key: 'okapi' }],
    exports: [{ status: 'RUNNING', status_reason: 'okapi' }],
    exportRuns: [{ errors: { retry_0: 'okapi' }, metadata: { result: { exported_files: ['okapi/file.parquet'] } } }],
    usage: { usage: [{ dimensions: { project_name: 'okapi' }, traces: 1 }] },
  });
});

describe('the table', () => {
  it('lists exactly the operations that need a key', () => {
    expect(Object.keys(attempts).sort()).toEqual(guarded.map(({ operationId }) => operationId).sort());
  });
});

describe.each(table)('%s', (id, operation) => {
  const { method, errorStyle = 'detail', access } = operation;
  const attempt = () => attempts[id]?.(victim) as Attempt;

  it('requires a valid key', async () => {
    for (const key of [undefined, '', 'rlk_wrong', `${stranger.adminKey}x`]) {
      const answer = await ask(method, attempt(), key);
      expect(answer.statusCode).toBe(401);
      expect(answer.json()).toHaveProperty(textFields[errorStyle]);
    }
  });

  it('denies access to a foreign workspace named in the header', async () => {
    const foreign = { 'x-tenant-id': victim.workspaceId };
    for (const key of [stranger.adminKey, zebra.workspaceKeys[1]]) {
      const answer = await ask(method, attempt(), key, foreign);
      expect(answer.statusCode).toBe(403);
      expect(answer.body).not.toContain('okapi');
    }
    for (const header of [{ 'x-tenant-id': 'no-uuid' }, { 'x-organization-id': zebra.id }]) {
      expect((await ask(method, attempt(), stranger.adminKey, header)).statusCode).toBe(403);
    }
  });

  it('authorises a session like a key, and only with its CSRF token', async () => {
    const foreign = { 'x-tenant-id': victim.workspaceId };
    const answer = await ask(method, attempt(), undefined, { ...foreign, ...session });
    expect(answer.statusCode).toBe(403);
    expect(answer.json()).not.toMatchObject({ code: 'CSRF_TOKEN_REQUIRED' });
    expect(answer.body).not.toContain('okapi');
    if (method === 'GET') return;
    const unconfirmed = await ask(method, attempt(), undefined, { cookie: session.cookie });
    expect(unconfirmed.statusCode).toBe(403);
    if (errorStyle !== 'otlp') expect(unconfirmed.json()).toMatchObject({ code: 'CSRF_TOKEN_REQUIRED' });
  });

  it('requires its permission', async () => {
    if (!('permission' in access)) return;
    const listed: { name: string }[] = (await ask('GET', { url: '/orgs/permissions' }, stranger.adminKey)).json();
    const permissions = listed.map(({ name }) => name).filter((name) => name !== access.permission);
    const payload = { permissions, default_workspace_id: stranger.workspaceIds[0] };
    const made = await ask('POST', { url: '/orgs/current/service-keys', payload }, stranger.adminKey);
    const answer = await ask(method, attempt(), made.json().key);
    expect(answer.statusCode).toBe(403);
    if (errorStyle === 'otlp') {
      return expect(answer.json().message).toContain(access.permission);
    }
    expect(answer.json()).toMatchObject({
      [textFields[errorStyle]]: 'Forbidden',
      remedy: expect.stringContaining(access.permission),
    });
  });

  /** Returns the status and body of a response, which must contain none of `words`. */
  const matchWithoutWords = (words: RegExp) => [
    expect.toSatisfy((status: number) => (attempt().answers ?? closed).includes(status)),
    expect.not.stringMatching(words),
  ];

  it('neither reads nor changes a foreign organisation', async () => {
    const answer = await ask(method, attempt(), stranger.adminKey);
    expect([answer.statusCode, answer.body]).toEqual(matchWithoutWords(/okapi|zebra/));
  });

  it('neither reads nor changes another workspace', async () => {
    const answer = await ask(method, attempt(), zebra.workspaceKeys[1]);
    expect([answer.statusCode, answer.body]).toEqual(matchWithoutWords(/okapi/));
    if (readAfter.has(operation)) expect(await readVictimData()).toEqual(before);
  });
});

describe('the victim', () => {
  it('has deployments whose addresses are closed to sessions of others', async () => {
    const sessions = [session, await startSession(api.server, zebra.workspaceKeys[1])];
    const answers = await attackAddress(api.server, { victim, key: zebra.workspaceKeys[0], sessions });
    expect(answers.filter((answer) => !/^403 (DEPLOYMENT|WORKSPACE)_FORBIDDEN$/.test(answer))).toEqual([]);
  });

  it('is unchanged after all attempts, also by operations that only read', async () => {
    expect(await readVictimData()).toEqual(before);
  });
});

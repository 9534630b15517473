import { randomUUID } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import { operations } from '../../../../api/main/operations.ts';
import { folderForSuite } from '../../../folders.ts';
import { forSuite } from '../../../for-suite.ts';
import { addOrganization, startApi } from '../../start-api.ts';
import { unaudited } from './unaudited.ts';

/**
 * Runs every operation whose change belongs in the audit log, and compares the entries of each. Every other operation
 * that is not GET is in the table `unaudited` with the reason.
 */
type Method = 'POST' | 'PUT' | 'PATCH' | 'DELETE';
interface Step {
  readonly method: Method;
  readonly url: string;
  readonly payload?: object;
  /** Actions of the entries, in any order. */
  readonly actions: readonly string[];
  /** Called with the response. */
  readonly onAnswer?: (body: never) => void;
}
const root = folderForSuite();
/** Ids of what the steps create. */
const ids: Record<string, string> = {};
const keep = (name: string) => (body: { id: string }) => {
  ids[name] = body.id;
};

const api = forSuite(() => startApi({ config: { localExportRoot: root, patchWaitMs: 0 } }));
// The first organisation is that of the operator.
const acme = forSuite(() => addOrganization(api.database, 'acme'));
beforeAll(async () => {
  ids.runId = randomUUID();
  const run = { id: ids.runId, name: 'hello', run_type: 'chain', inputs: {}, start_time: new Date().toISOString() };
  expect((await api.ask(acme.adminKey, 'POST', '/runs', { ...run, session_name: 'hello' })).status).toBe(202);
  await api.settled();
  const [project] = (await api.ask(acme.adminKey, 'GET', '/sessions?name=hello')).body;
  ids.projectId = project.id;
  const feedback = await api.ask(acme.adminKey, 'POST', '/feedback', { run_id: ids.runId, key: 'good', score: 1 });
  keep('feedbackId')(feedback.body);
  await api.settled();
});

const secrets = '/workspaces/current/secrets';
const destinations = '/bulk-exports/destinations';
const anna = 'user_id=anna';

/** In order: later steps use what earlier ones created. */
const steps: Readonly<Record<string, () => Step | readonly Step[]>> = {
  setHandle: () => ({
    ...{ method: 'POST', url: '/settings/handle', payload: { tenant_handle: 'acme' } },
    actions: ['workspace.update'],
  }),
  createOrganization: () => ({
    ...{ method: 'POST', url: '/orgs', payload: { display_name: 'second' } },
    actions: ['organization.create', 'workspace.create', 'member.create', 'api_key.create'],
    onAnswer: (body: { organization: { id: string } } & { id: string }) => {
      ids.organizationId = body.organization?.id ?? body.id;
    },
  }),
  deleteOrganization: () => ({
    ...{ method: 'DELETE', url: `/orgs/${ids.organizationId}` },
    actions: ['organization.delete', 'workspace.delete', 'member.remove', 'api_key.revoke'],
  }),
  createMember: () => ({
    ...{ method: 'POST', url: '/orgs/current/members', payload: { email: 'new@acme.example' } },
    ...{ actions: ['member.create'], onAnswer: keep('memberId') },
  }),
  deleteMember: () => ({
    ...{ method: 'DELETE', url: `/orgs/current/members/${ids.memberId}`, actions: ['member.remove'] },
  }),
  createWorkspace: () => ({
    ...{ method: 'POST', url: '/workspaces', payload: { display_name: 'third' } },
    ...{ actions: ['workspace.create'], onAnswer: keep('workspaceId') },
  }),
  updateWorkspace: () => ({
    ...{ method: 'PATCH', url: `/workspaces/${ids.workspaceId}`, payload: { display_name: 'renamed' } },
    actions: ['workspace.update'],
  }),
  deleteWorkspace: () => ({
    ...{ method: 'DELETE', url: `/workspaces/${ids.workspaceId}`, actions: ['workspace.delete'] },
  }),
  createApiKey: () => ({
    ...{ method: 'POST', url: '/api-key', payload: { description: 'first' } },
    ...{ actions: ['api_key.create'], onAnswer: keep('keyId') },
  }),
  revokeApiKey: () => ({ method: 'DELETE', url: `/api-key/${ids.keyId}`, actions: ['api_key.revoke'] }),
  createServiceKey: () => ({
    ...{ method: 'POST', url: '/orgs/current/service-keys', payload: { user_email: 'other@acme.example' } },
    ...{ actions: ['api_key.create', 'member.create'], onAnswer: keep('serviceKeyId') },
  }),
  revokeServiceKey: () => ({
    ...{ method: 'DELETE', url: `/orgs/current/service-keys/${ids.serviceKeyId}`, actions: ['api_key.revoke'] },
  }),
  signIn: () => ({
    ...{ method: 'POST', url: '/session', payload: { api_key: acme.adminKey }, actions: ['session.create'] },
  }),
  setUsageLimit: () => [
    {
      ...{ method: 'PUT', url: '/usage-limits', payload: { limit_type: 'monthly_traces', limit_value: 1_000 } },
      ...{ actions: ['usage_limit.create'], onAnswer: keep('limitId') },
    },
    {
      ...{ method: 'PUT', url: '/usage-limits', payload: { limit_type: 'monthly_traces', limit_value: 2_000 } },
      actions: ['usage_limit.update'],
    },
    {
      ...{ method: 'PUT', url: '/usage-limits', actions: ['usage_limit.update'] },
      get payload() {
        return { limit_type: 'monthly_traces', limit_value: 2_000, is_hard: false, id: ids.limitId };
      },
    },
  ],
  deleteUsageLimit: () => ({
    ...{ method: 'DELETE', url: `/usage-limits/${ids.limitId}`, actions: ['usage_limit.delete'] },
  }),
  setSecrets: () => [
    { method: 'POST', url: secrets, payload: [{ key: 'A', value: 'hush' }], actions: ['secret.create'] },
    { method: 'POST', url: secrets, payload: [{ key: 'A', value: 'hush 2' }], actions: ['secret.update'] },
    { method: 'POST', url: secrets, payload: [{ key: 'A', value: null }], actions: ['secret.delete'] },
  ],
  setSecret: () => ({ method: 'PUT', url: `${secrets}/B`, payload: { value: 'hush' }, actions: ['secret.create'] }),
  deleteSecret: () => ({ method: 'DELETE', url: `${secrets}/B`, actions: ['secret.delete'] }),
  createBulkExportDestination: () => ({
    ...{ method: 'POST', url: destinations, actions: ['export_destination.create'], onAnswer: keep('destinationId') },
    payload: { destination_type: 'local', display_name: 'lake', config: { prefix: 'lake' } },
  }),
  updateBulkExportDestination: () => ({
    ...{ method: 'PATCH', url: `${destinations}/${ids.destinationId}`, payload: { display_name: 'sea' } },
    actions: ['export_destination.update'],
  }),
  createBulkExport: () => ({
    ...{ method: 'POST', url: '/bulk-exports', actions: ['bulk_export.create'], onAnswer: keep('exportId') },
    payload: {
      ...{ bulk_export_destination_id: ids.destinationId, session_id: ids.projectId },
      ...{ start_time: '2026-03-05T00:00:00Z', end_time: '2026-03-06T00:00:00Z' },
    },
  }),
  cancelBulkExport: () => ({
    ...{ method: 'PATCH', url: `/bulk-exports/${ids.exportId}`, payload: { status: 'Cancelled' } },
    actions: ['bulk_export.cancel'],
  }),
  deleteBulkExportDestination: () => ({
    ...{ method: 'DELETE', url: `${destinations}/${ids.destinationId}`, actions: ['export_destination.delete'] },
  }),
  createDeployment: () => ({
    ...{ method: 'POST', url: '/v2/deployments', actions: ['deployment.create', 'deployment_revision.create'] },
    payload: {
      ...{ name: 'trip', source: 'github', source_config: { repo_url: 'https://example.com/trip.git' } },
      ...{ source_revision_config: { repo_ref: 'main' }, secrets: [{ name: 'KEY', value: 'hush' }] },
    },
    onAnswer: (body: { id: string; latest_revision_id: string }) => {
      ids.deploymentId = body.id;
      ids.revisionId = body.latest_revision_id;
    },
  }),
  updateDeployment: () => ({
    ...{ method: 'PATCH', url: `/v2/deployments/${ids.deploymentId}` },
    payload: { secrets: [{ name: 'KEY', value: 'hush 2' }] },
    actions: ['deployment.update', 'deployment_revision.create'],
  }),
  createRevision: () => ({
    ...{ method: 'POST', url: `/v2/deployments/${ids.deploymentId}/revisions`, payload: {} },
    actions: ['deployment_revision.create'],
  }),
  deleteDeployment: () => ({
    ...{ method: 'DELETE', url: `/v2/deployments/${ids.deploymentId}?delete_tracing_project=true` },
    actions: ['deployment.delete', 'project.delete'],
  }),
  createOAuthProvider: () => ({
    ...{ method: 'POST', url: '/v2/auth/providers', actions: ['oauth_provider.create'] },
    payload: {
      ...{ provider_id: 'mail', name: 'Mail', client_id: 'runlake', client_secret: 'hush' },
      ...{ auth_url: 'https://example.com/auth', token_url: 'https://example.com/token' },
    },
    onAnswer: keep('providerId'),
  }),
  updateOAuthProvider: () => ({
    ...{ method: 'PATCH', url: '/v2/auth/providers/mail', payload: { client_secret: 'hush 2' } },
    actions: ['oauth_provider.update'],
  }),
  updateOAuthToken: () => ({
    ...{ method: 'PATCH', url: `/v2/auth/tokens/${ids.tokenId}/metadata?${anna}` },
    ...{ payload: { provider_account_label: 'private' }, actions: ['oauth_token.update'] },
  }),
  createAgentConnection: () => ({
    ...{ method: 'POST', url: `/v2/auth/agents/triage/connections?${anna}`, actions: ['oauth_connection.create'] },
    ...{ payload: { oauth_token_id: ids.tokenId }, onAnswer: keep('connectionId') },
  }),
  deleteAgentConnection: () => ({
    ...{ method: 'DELETE', url: `/v2/auth/agents/triage/connections/${ids.connectionId}?${anna}` },
    actions: ['oauth_connection.delete'],
  }),
  deleteOAuthTokens: () => ({
    ...{ method: 'DELETE', url: `/v2/auth/tokens?${anna}&provider_id=mail`, actions: ['oauth_token.delete'] },
  }),
  deleteOAuthProvider: () => ({
    ...{ method: 'DELETE', url: '/v2/auth/providers/mail', actions: ['oauth_provider.delete'] },
  }),
  shareRun: () => ({ method: 'PUT', url: `/runs/${ids.runId}/share`, actions: ['share.create'] }),
  unshareRun: () => ({ method: 'DELETE', url: `/runs/${ids.runId}/share`, actions: ['share.delete'] }),
  createDataset: () => ({
    ...{ method: 'POST', url: '/datasets', payload: { name: 'cases' }, actions: [], onAnswer: keep('datasetId') },
  }),
  createExample: () => ({
    ...{ method: 'POST', url: '/examples', payload: { dataset_id: ids.datasetId, inputs: {} }, actions: [] },
    onAnswer: keep('exampleId'),
  }),
  shareDataset: () => [
    { method: 'PUT', url: `/datasets/${ids.datasetId}/share`, actions: ['share.create'] },
    { method: 'PUT', url: `/datasets/${ids.datasetId}/share?share_projects=true`, actions: ['share.update'] },
    { method: 'PUT', url: `/datasets/${ids.datasetId}/share?share_projects=true`, actions: [] },
  ],
  endSharing: () => ({
    ...{ method: 'DELETE', url: '/workspaces/current/shared', payload: { unshare_all: true } },
    actions: ['share.delete'],
  }),
  deleteExampleList: () => ({
    ...{ method: 'POST', url: '/v1/platform/datasets/examples/delete', actions: ['example.delete'] },
    payload: { example_ids: [ids.exampleId], hard_delete: true },
  }),
  deleteDataset: () => ({ method: 'DELETE', url: `/datasets/${ids.datasetId}`, actions: ['dataset.delete'] }),
  createRepo: () => ({
    ...{ method: 'POST', url: '/repos', payload: { repo_handle: 'greeting', is_public: false }, actions: [] },
  }),
  updateRepo: () => ({
    ...{ method: 'PATCH', url: '/repos/-/greeting', payload: { is_public: true }, actions: ['prompt.update'] },
  }),
  deleteRepo: () => ({ method: 'DELETE', url: '/repos/-/greeting', actions: ['prompt.delete'] }),
  createAnnotationQueue: () => ({
    ...{ method: 'POST', url: '/annotation-queues', payload: { name: 'todo' }, actions: [], onAnswer: keep('queueId') },
  }),
  deleteAnnotationQueue: () => ({
    ...{ method: 'DELETE', url: `/annotation-queues/${ids.queueId}`, actions: ['annotation_queue.delete'] },
  }),
  createEvaluator: () => ({
    ...{ method: 'POST', url: '/v1/platform/evaluators', actions: [] },
    payload: { name: 'strict', type: 'code', code_evaluator: { code: 'pass' } },
    onAnswer: ({ evaluator }: { evaluator: { id: string } }) => keep('evaluatorId')(evaluator),
  }),
  deleteEvaluator: () => ({
    ...{ method: 'DELETE', url: `/v1/platform/evaluators/${ids.evaluatorId}`, actions: ['evaluator.delete'] },
  }),
  createModelPrice: () => ({
    ...{ method: 'POST', url: '/model-price-map', actions: [], onAnswer: keep('priceId') },
    payload: { name: 'own', match_pattern: 'own', prompt_cost: '0.1', completion_cost: '0.2' },
  }),
  deleteModelPrice: () => ({
    ...{ method: 'DELETE', url: `/model-price-map/${ids.priceId}`, actions: ['model_price.delete'] },
  }),
  deleteFeedback: () => ({ method: 'DELETE', url: `/feedback/${ids.feedbackId}`, actions: ['feedback.delete'] }),
  deleteRuns: () => ({
    ...{ method: 'POST', url: '/runs/delete', actions: ['trace.delete'] },
    payload: { session_id: ids.projectId, trace_ids: [ids.runId] },
  }),
  deleteTraces: () => ({
    ...{ method: 'POST', url: '/runs/delete/traces', actions: ['trace.delete'] },
    payload: { session_id: ids.projectId, trace_ids: [ids.runId] },
  }),
  replayDeadLetters: () => ({
    ...{ method: 'POST', url: '/system/dead-letters/replay', payload: { ids: ['run-events/1'] } },
    actions: ['dead_letter.replay'],
  }),
  deleteSession: () => ({ method: 'DELETE', url: `/sessions/${ids.projectId}`, actions: ['project.delete'] }),
};

const ipOfTests = '192.0.2.7';
const list = async (query: string) => (await api.ask(acme.adminKey, 'GET', `/audit-logs?${query}`)).body;

it.each(Object.entries(steps))('%s is audited', async (operationId, build) => {
  if (operationId === 'updateOAuthToken') {
    const [token] = await api.database.query<{ id: string }>(
      `INSERT INTO oauth_tokens (id, workspace_id, provider, user_id, scopes, sealed_access_token, for_any_agent, is_default)
       VALUES (gen_random_uuid(), $1, $2, 'anna', '{}', 'not used', true, true) RETURNING id`,
      [acme.workspaceIds[0], ids.providerId],
    );
    ids.tokenId = token?.id ?? '';
  }
  for (const { method, url, payload, actions, onAnswer } of [build()].flat() as Step[]) {
    const [last] = await api.database.query<{ id: number }>('SELECT coalesce(max(id), 0) AS id FROM audit_logs');
    const isSignIn = operationId === 'signIn';
    const answer = await api.server.inject({
      ...{ method, url, remoteAddress: ipOfTests },
      headers: isSignIn ? {} : { 'x-api-key': acme.adminKey },
      ...(payload && { payload }),
    });
    expect([answer.statusCode, answer.body]).toEqual([expect.toSatisfy((status) => status < 300), expect.anything()]);
    onAnswer?.((answer.body === '' ? undefined : answer.json()) as never);
    const entries = await api.database.query<{ action: string; actor_kind: string; actor_name: string; ip: string }>(
      'SELECT action, actor_kind, actor_name, ip, details::text FROM audit_logs WHERE id > $1',
      [last?.id],
    );
    expect(entries.map(({ action }) => action).sort()).toEqual([...actions].sort());
    for (const entry of entries) {
      expect(entry).toMatchObject({
        actor_kind: isSignIn ? 'session' : 'api_key',
        actor_name: 'admin@acme.example',
        ip: ipOfTests,
      });
      expect(JSON.stringify(entry)).not.toContain('hush');
    }
  }
});

it('covers every operation that changes something', () => {
  const changing = operations.filter(({ method }) => method !== 'GET').map(({ operationId }) => operationId);
  const names = [...Object.keys(steps), ...Object.keys(unaudited)];
  expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
  expect(names.sort()).toEqual(changing.sort());
});

it('lists the entries of the organisation, and says who, what, from where and when', async () => {
  const { items } = await list('action=secret.create');
  expect(items).toHaveLength(2);
  expect(items[0]).toEqual({
    id: expect.stringMatching(/^\d+$/),
    at: expect.stringMatching(/Z$/),
    actor: { kind: 'api_key', id: expect.any(String), name: 'admin@acme.example' },
    action: 'secret.create',
    target: { kind: 'secret', id: 'B', name: 'B' },
    workspace_id: acme.workspaceIds[0],
    ip: ipOfTests,
    details: {},
  });
  const changed = await list('action=deployment.update');
  expect(changed.items[0].details.changed).toContain('secrets');
});

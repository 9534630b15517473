import { describe, expect, it } from 'vitest';
import type { Assistant } from '../../../../pipelines/agents/assistants/assistant.ts';
import { createHeaderRule, type RunRequest, readRunRequest } from '../../../../pipelines/agents/runs/run-request.ts';
import { buildWebhookRules } from '../../../../pipelines/agents/webhooks/webhook-rules.ts';

const assistant: Assistant = {
  assistant_id: 'assistant-1',
  graph_id: 'graph-1',
  name: 'one',
  description: null,
  config: { tags: ['a'], recursion_limit: 5, configurable: { kept: 1, changed: 1 }, metadata: { of: 'assistant' } },
  context: { tone: 'dry', length: 1 },
  metadata: {},
  version: 1,
  created_at: '2026-01-02T03:04:05.000000Z',
  updated_at: '2026-01-02T03:04:05.000000Z',
};
const rules = {
  copiesHeader: createHeaderRule(),
  webhooks: buildWebhookRules({ allowPrivate: false }),
  acceptsFeedbackKeys: false,
};
const ids = { runId: 'run-1', threadId: 'thread-1' };
const origin = { assistant, ...ids, stateless: false, userId: 'user-1', headers: {}, rules };
const read = (request: Omit<RunRequest, 'assistant_id'>, more: Partial<Parameters<typeof readRunRequest>[1]> = {}) =>
  readRunRequest({ assistant_id: 'graph-1', ...request }, { ...origin, ...more });

describe('a run request', () => {
  it('has defaults', () => {
    const { kwargs, ...rest } = read({});
    expect(rest).toEqual({
      metadata: { graph_id: 'graph-1', assistant_id: 'assistant-1' },
      threadMetadata: {},
      threadConfig: { ...assistant.config },
      multitaskStrategy: 'enqueue',
      ifNotExists: 'reject',
      cancelOnDisconnect: false,
      afterSeconds: 0,
      temporary: false,
    });
    expect(kwargs).toMatchObject({ stream_mode: ['values'], subgraphs: false, resumable: false, durability: 'async' });
    for (const absent of ['input', 'command', 'checkpoint', 'interrupt_before'])
      expect(kwargs).not.toHaveProperty(absent);
  });

  it('treats null as absent, except for input, where null continues the thread', () => {
    const nulls = { command: null, config: null, metadata: null, stream_mode: null, checkpoint: null, webhook: null };
    expect(read(nulls)).toEqual(read({}));
    expect(read({ input: null }).kwargs).toHaveProperty('input', null);
  });

  it('merges config and context over those of the assistant; the server sets identity and ids', () => {
    const { kwargs } = read({
      config: {
        tags: ['b', 'a'],
        configurable: { changed: 2, thread_id: 'forged', langgraph_auth_user_id: 'forged', user_id: 'ada' },
        metadata: { by: 'me' },
      },
      context: { tone: 'warm' },
    });
    expect(kwargs.config).toMatchObject({
      tags: ['a', 'b'],
      recursion_limit: 5,
      metadata: { of: 'assistant', by: 'me' },
      configurable: {
        ...{ kept: 1, changed: 2, thread_id: 'thread-1', run_id: 'run-1' },
        ...{ user_id: 'ada', langgraph_auth_user_id: 'user-1' },
      },
    });
    expect(kwargs.context).toEqual({ tone: 'warm', length: 1 });
  });

  it('copies no unlisted header except user-agent', () => {
    const headers = {
      'x-a': '1',
      'user-agent': 'me',
      'x-api-key': 'k',
      'x-tenant-id': 't',
      'x-service-key': 's',
      cookie: 'c',
    };
    const { configurable } = read({}, { headers }).kwargs.config;
    expect(configurable).toMatchObject({ 'user-agent': 'me' });
    for (const name of ['x-a', 'x-api-key', 'x-tenant-id', 'x-service-key', 'cookie'])
      expect(configurable).not.toHaveProperty(name);
  });

  it.each([
    [
      { includes: ['X-*'] },
      ['x-a', 'x-b-c', 'x-monkey', 'x-authors'],
      ['user-agent', 'authorization', 'x-amz-security-token', 'x-auth-user', 'x-goog-api-key', 'x-session'],
    ],
    [{ includes: ['x-amz-security-token'] }, ['x-amz-security-token'], ['x-auth-token']],
    [
      { include: ['*'], exclude: ['x-b-*'] },
      ['x-a', 'user-agent', 'accept'],
      ['x-b-c', 'x-api-key', 'authorization', 'cookie', 'checkpoint_id', 'checkpoint_ns', 'checkpoint_map'],
    ],
    [{ includes: ['authorization'] }, ['authorization'], ['x-a', 'user-agent']],
    [{ excludes: ['user-*'] }, [], ['x-a', 'x-b-c', 'user-agent', 'x-api-key']],
    [{ includes: ['x.a'] }, [], ['x-a']],
    [
      { includes: ['x-*-b*c', 'y**'] },
      ['x--bc', 'x-a-b-b-c', 'y', 'y-a'],
      ['x-bc', 'x-a-c', 'x-a-b', 'x-a-bcd', 'a-y'],
    ],
    // A backtracking pattern takes five minutes.
    [{ includes: [`${'*a'.repeat(7)}b`] }, [`${'a'.repeat(100)}b`], ['a'.repeat(100)]],
    [null, ['user-agent'], ['x-a', 'accept', 'x-tenant-id', `x-${'a'.repeat(300)}`]],
  ])('copies headers by the rule %j', (choice, copied, left) => {
    const isCopied = createHeaderRule(choice);
    expect([copied.filter(isCopied), left.filter(isCopied)]).toEqual([copied, []]);
  });

  it('accepts feedback_keys if a feedback address is set, without duplicates', () => {
    const accepting = { rules: { ...rules, acceptsFeedbackKeys: true } };
    expect(read({ feedback_keys: ['a', 'b', 'a'] }, accepting).kwargs.feedback_keys).toEqual(['a', 'b']);
    expect(read({ feedback_keys: [] }).kwargs).not.toHaveProperty('feedback_keys');
    expect(() => read({ feedback_keys: ['a'] })).toThrow(expect.objectContaining({ code: 'FEEDBACK_ADDRESS_UNSET' }));
  });

  it.each<[Omit<RunRequest, 'assistant_id'>, object]>([
    [{ checkpoint_id: 'c' }, { checkpoint: { checkpoint_id: 'c' } }],
    [
      { checkpoint: { checkpoint_id: 'c', checkpoint_ns: '', checkpoint_map: null } },
      { checkpoint: { checkpoint_id: 'c', checkpoint_ns: '' } },
    ],
    [{ config: { configurable: { checkpoint_id: 'c' } } }, { checkpoint: { checkpoint_id: 'c' } }],
    [{ checkpoint_during: false }, { durability: 'exit' }],
    [{ checkpoint_during: true }, { durability: 'async' }],
    [{ checkpoint_during: false, durability: 'sync' }, { durability: 'sync' }],
    [{ stream_mode: 'custom' }, { stream_mode: ['custom'] }],
    [{ stream_mode: ['custom', 'values', 'custom'] }, { stream_mode: ['custom', 'values'] }],
    [{ stream_mode: [] }, { stream_mode: ['values'] }],
    [{ interrupt_before: ['a', '*'] }, { interrupt_before: '*' }],
    [{ langsmith_tracer: { project_name: 'p', example_id: null } }, { langsmith_tracer: { project_name: 'p' } }],
  ])('reads %j', (request, kwargs) => {
    expect(read(request).kwargs).toMatchObject(kwargs);
  });

  it.each([
    [{}, true],
    [{ on_completion: 'keep' as const }, false],
  ])('a stateless request %j is temporary: %s', (request, temporary) => {
    const { kwargs, ...rest } = read(request, { stateless: true });
    expect([rest.temporary, kwargs.temporary]).toEqual([temporary, temporary]);
  });

  it('refuses fields without effect and names them, and webhooks by their rules', () => {
    const fields = [expect.objectContaining({ loc: ['body', 'on_completion'] })];
    expect(() => read({ on_completion: 'delete' })).toThrow(
      expect.objectContaining({ code: 'FIELD_NOT_BUILT', fields }),
    );
    expect(read({ webhook: 'https://a.example' }).kwargs.webhook).toBe('https://a.example');
    expect(() => read({ webhook: 'http://127.0.0.1' })).toThrow(expect.objectContaining({ code: 'WEBHOOK_INVALID' }));
  });
});

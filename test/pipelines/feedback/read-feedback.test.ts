import avsc from 'avsc';
import { describe, expect, it } from 'vitest';
import { toFeedbackMessage } from '../../../pipelines/feedback/feedback-event.ts';
import { readFeedback } from '../../../pipelines/feedback/read-feedback.ts';
import { feedbackEvents } from '../../../schemas/topics.ts';

const sender = {
  workspaceId: '00000000-0000-4000-8000-000000000001',
  userId: '00000000-0000-4000-8000-000000000002',
  keyId: '00000000-0000-4000-8000-000000000003',
};
const id = '0199aaaa-0000-7000-8000-00000000000a';
const runId = '0199aaaa-0000-7000-8000-00000000000b';
const traceId = '0199aaaa-0000-7000-8000-00000000000c';
const projectId = '0199aaaa-0000-7000-8000-00000000000d';
const config = { maxRunBytes: 100_000, maxJsonDepth: 20 };
const log = { schemaId: () => 7 };
const type = avsc.Type.forSchema(JSON.parse(feedbackEvents.schema));

const read = (json: string | Buffer) =>
  toFeedbackMessage(readFeedback(sender, { bytes: Buffer.from(json), part: 'feedback.x' }, config), log, config);
const decode = (value: Buffer) => {
  expect(value.subarray(0, 5)).toEqual(Buffer.from([0, 0, 0, 0, 7]));
  return type.fromBuffer(value.subarray(5)) as Record<string, unknown>;
};
/** Builds feedback from members as text, because the test compares bytes. */
const feedback = (members: Readonly<Record<string, string>> = {}) =>
  `{${Object.entries({ id: `"${id}"`, run_id: `"${runId}"`, key: '"k"', ...members })
    .map(([key, value]) => `${JSON.stringify(key)}: ${value}`)
    .join(' , ')}}`;

describe('a feedback part', () => {
  it('becomes a record of the schema with its JSON unchanged', () => {
    const json = {
      score: '1.50',
      value: '{"big": 12345678901234567890,  "lone":"\\ud800", "__proto__": 1, "__proto__": 2}',
      comment: '"tell \\u0000 \\ud83d\\ude00 é"',
      correction: '{"a" :[ 1.0 ]}',
      extra: '{ "x":-0 }',
      feedback_source: '{"type" : "model","metadata":{"n":1e400}}',
    };
    const message = read(
      feedback({
        ...json,
        trace_id: `"${traceId.toUpperCase()}"`,
        session_id: `"${projectId.replaceAll('-', '')}"`,
        start_time: '1700000000123',
        feedback_group_id: `"${traceId}"`,
        comparative_experiment_id: `"${projectId}"`,
        error: 'true',
        created_at: '"2024-01-02T03:04:05.678901"',
        modified_at: '"2024-01-02T04:04:05.678901+01:00"',
        extend_trace_retention: 'true',
        feedback_config: 'null',
      }),
    );
    expect(message.key).toBe(`${sender.workspaceId}:${runId}`);
    expect(decode(message.value)).toEqual({
      tenant_id: sender.workspaceId,
      run_id: runId,
      id,
      keeps_trace: true,
      received_at: expect.any(Number),
      trace_id: traceId,
      session_id: projectId,
      start_time: 1_700_000_000_123_000,
      key: 'k',
      score: Buffer.from(json.score),
      value: Buffer.from(json.value),
      comment: Buffer.from(json.comment),
      correction: Buffer.from(json.correction),
      source_type: 'model',
      feedback_source: Buffer.from(json.feedback_source),
      feedback_group_id: traceId,
      comparative_experiment_id: projectId,
      extra: Buffer.from(json.extra),
      error: true,
      user_id: sender.userId,
      created_at: 1_704_164_645_678_901,
      modified_at: 1_704_164_645_678_901,
      deleted_at: null,
    });
  });

  it('has few required members, and treats null as absent', () => {
    const nulls = Object.fromEntries(
      ['score', 'value', 'comment', 'correction', 'trace_id', 'extra', 'error', 'feedback_source', 'created_at'].map(
        (key) => [key, 'null'],
      ),
    );
    for (const text of [feedback(), feedback(nulls)]) {
      expect(decode(read(text).value)).toMatchObject({
        score: null,
        value: null,
        comment: null,
        extra: null,
        error: null,
        trace_id: null,
        source_type: 'api',
        feedback_source: Buffer.from('{"type":"api","metadata":{}}'),
      });
    }
  });

  it.each([
    ['a project', { run_id: 'null', session_id: `"${projectId}"` }, '00000000-0000-0000-0000-000000000000', projectId],
    ['only a trace, which stands for its root run', { run_id: 'null', trace_id: `"${traceId}"` }, traceId, traceId],
  ])('may refer to %s', (_, members, run, about) => {
    const message = read(feedback(members));
    expect(message.key).toBe(`${sender.workspaceId}:${about}`);
    expect(decode(message.value)).toMatchObject({ run_id: run });
  });

  it.each(['0', '-1', '0.1234567890123456789', '1e3', 'true', 'false'])('accepts the score %s', (score) => {
    expect(decode(read(feedback({ score })).value)).toMatchObject({ score: Buffer.from(score) });
  });

  it.each([
    ['INVALID_FEEDBACK', 'id is missing', feedback({ id: 'null' })],
    ['INVALID_FEEDBACK', 'id must be a UUID', feedback({ id: '"x"' })],
    ['INVALID_FEEDBACK', 'id must be a string', feedback({ id: '1' })],
    ['INVALID_FEEDBACK', 'run_id or session_id is required', feedback({ run_id: 'null' })],
    ['INVALID_FEEDBACK', 'run_id must be a UUID', feedback({ run_id: `"' OR 1=1 --"` })],
    ['INVALID_FEEDBACK', 'key is missing', feedback({ key: 'null' })],
    ['INVALID_FEEDBACK', 'key is empty', feedback({ key: '""' })],
    ['INVALID_FEEDBACK', 'key must be a string', feedback({ key: '{}' })],
    ['INVALID_FEEDBACK', 'key is longer than 180 characters', feedback({ key: `"${'k'.repeat(181)}"` })],
    ['INVALID_FEEDBACK', 'key contains NUL', feedback({ key: '"a\\u0000"' })],
    ['INVALID_FEEDBACK', 'key contains NUL characters or lone surrogates', feedback({ key: '"a\\udc00"' })],
    ['INVALID_FEEDBACK', 'score must be number or true or false', feedback({ score: '"1"' })],
    ['INVALID_FEEDBACK', 'score must be', feedback({ score: '[1]' })],
    ['INVALID_FEEDBACK', 'score exceeds', feedback({ score: '1e400' })],
    ['INVALID_FEEDBACK', 'score exceeds', feedback({ score: '1'.repeat(401) })],
    ['INVALID_FEEDBACK', 'value must be', feedback({ value: '[]' })],
    ['INVALID_FEEDBACK', 'comment must be string', feedback({ comment: '1' })],
    ['INVALID_FEEDBACK', 'correction must be', feedback({ correction: '1' })],
    ['INVALID_FEEDBACK', 'extra must be object', feedback({ extra: '"x"' })],
    ['INVALID_FEEDBACK', 'error must be', feedback({ error: '"yes"' })],
    ['INVALID_FEEDBACK', 'feedback_source must be object', feedback({ feedback_source: '"api"' })],
    ['INVALID_FEEDBACK', 'a type that is one of api', feedback({ feedback_source: '{"type":"x"}' })],
    ['INVALID_FEEDBACK', 'metadata that is not an object', feedback({ feedback_source: '{"metadata":1}' })],
    ['INVALID_FEEDBACK', 'created_at must be a time', feedback({ created_at: '"2024-02-30T00:00:00Z"' })],
    ['INVALID_FEEDBACK', 'created_at is outside', feedback({ created_at: '"1969-12-31T23:59:59Z"' })],
    ['INVALID_FEEDBACK', 'modified_at is outside', feedback({ modified_at: '"2999-01-01T00:00:00Z"' })],
    ['INVALID_FEEDBACK', 'address must be a string', feedback({ address: '{}' })],
    ['INVALID_FEEDBACK', 'address must be lrn:agents/', feedback({ address: '"support/production"' })],
    ['INVALID_FEEDBACK', 'feedback_config must be object', feedback({ feedback_config: '"freeform"' })],
    ['INVALID_FEEDBACK', 'feedback_config must have a type', feedback({ feedback_config: '{"type":"other"}' })],
    ['INVALID_FEEDBACK', 'feedbackConfig must have a type', feedback({ feedbackConfig: '{}' })],
    ['INVALID_FEEDBACK', 'a number as min', feedback({ feedback_config: '{"type":"continuous","min":"0"}' })],
    ['INVALID_FEEDBACK', 'a min above its max', feedback({ feedback_config: '{"type":"continuous","min":2,"max":1}' })],
    ['INVALID_FEEDBACK', 'has no categories', feedback({ feedback_config: '{"type":"categorical"}' })],
    [
      'INVALID_FEEDBACK',
      'list of at most 1000',
      feedback({ feedback_config: '{"type":"categorical","categories":{}}' }),
    ],
    [
      'INVALID_FEEDBACK',
      'a value in each',
      feedback({ feedback_config: '{"type":"categorical","categories":[null]}' }),
    ],
    [
      'INVALID_FEEDBACK',
      'labels of 1 to 1000 characters',
      feedback({ feedback_config: '{"type":"categorical","categories":[{"value":1,"label":""}]}' }),
    ],
    ['INVALID_JSON', 'feedback.x', '[]'],
    ['INVALID_JSON', 'feedback.x', ''],
    ['INVALID_JSON', 'feedback.x', `${feedback()}}`],
    ['INVALID_UTF8', 'feedback.x at byte 6', Buffer.from('{"id":\xff}', 'latin1')],
    ['TOO_DEEP', 'nested deeper than 20', feedback({ extra: '{"a":'.repeat(20) + '1'.padEnd(21, '}') })],
    ['RUN_TOO_LARGE', `with feedback ${id} is larger than 100000`, feedback({ comment: `"${'x'.repeat(100_000)}"` })],
  ])('is refused with %s: %s', (code, message, json) => {
    expect(() => read(json)).toThrow(expect.objectContaining({ code, message: expect.stringContaining(message) }));
  });

  it('is identified in errors by its id, or by its part if it has no id', () => {
    expect(() => read(feedback({ key: '1' }))).toThrow(`Feedback ${id}: key`);
    expect(() => read(feedback({ id: 'null' }))).toThrow('Feedback of feedback.x: id');
  });
});

describe('feedback sent on its own', () => {
  it('gets a generated id if it has none', () => {
    const text = { bytes: Buffer.from(feedback({ id: 'null' })), part: 'the body' };
    expect(readFeedback(sender, text, config, () => id)).toMatchObject({ id, runId, tenantId: sender.workspaceId });
  });
});

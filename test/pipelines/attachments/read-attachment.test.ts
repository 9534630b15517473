import avsc from 'avsc';
import { describe, expect, it } from 'vitest';
import { readAttachment } from '../../../pipelines/attachments/read-attachment.ts';
import { attachmentEvents } from '../../../schemas/topics.ts';

const sender = {
  workspaceId: '00000000-0000-4000-8000-000000000001',
  userId: '00000000-0000-4000-8000-000000000002',
  keyId: '00000000-0000-4000-8000-000000000003',
};
const runId = '0199aaaa-0000-7000-8000-00000000000b';
const deps = { log: { schemaId: () => 7 }, config: { maxRunBytes: 2_000 } };
const type = avsc.Type.forSchema(JSON.parse(attachmentEvents.schema));
const read = (more: object = {}) =>
  readAttachment(sender, { runId, name: 'a', mimeType: 'image/png', content: Buffer.from([0, 255]), ...more }, deps);

describe('an attachment', () => {
  it.each([
    ['plain', 'a', 'image/png', 'image/png'],
    ['empty', 'a', 'text/plain', 'text/plain'],
    ['with a name of 255 characters', '😀'.repeat(255), 'image/svg+xml', 'image/svg+xml'],
    ['with quotes in its name', `'"\\ /../é`, 'a/b', 'a/b'],
    ['with a parameter of its type', 'a', 'text/plain; charset=utf-8', 'text/plain'],
    ['with a codec in its type', 'a', 'audio/webm;codecs="opus, vp8"', 'audio/webm'],
    ['with a space before a parameter', 'a', 'text/html ; charset=utf-8', 'text/html'],
    ['with only a parameter', 'a', '; charset=utf-8', 'application/octet-stream'],
    ['without a type', 'a', '', 'application/octet-stream'],
    ['with an invalid type', 'a', 'undefined', 'application/octet-stream'],
    ['with a type that would inject headers', 'a', 'text/html\r\nx: y', 'application/octet-stream'],
    ['with a parameter that would inject headers', 'a', 'text/html;\r\nx: y', 'text/html'],
  ])('%s becomes a record of the schema', (_, name, mimeType, stored) => {
    const message = read({ name, mimeType });
    expect(message.key).toBe(`${sender.workspaceId}:${runId}`);
    expect(type.fromBuffer(message.value.subarray(5))).toEqual({
      tenant_id: sender.workspaceId,
      run_id: runId,
      name,
      received_at: expect.any(Number),
      mime_type: stored,
      content: Buffer.from([0, 255]),
    });
  });

  it.each([
    ['INVALID_ATTACHMENT', 'contains no attachment name', { name: '' }],
    ['INVALID_ATTACHMENT', 'longer than 255 characters', { name: 'x'.repeat(256) }],
    ['INVALID_ATTACHMENT', 'control characters', { name: 'a\r\nb' }],
    ['INVALID_ATTACHMENT', 'control characters', { name: 'a\0' }],
    ['RUN_TOO_LARGE', `${runId} with attachment a is larger than 2000 bytes`, { content: Buffer.alloc(2_000) }],
  ])('is refused with %s: %s', (code, message, more) => {
    expect(() => read(more)).toThrow(expect.objectContaining({ code, message: expect.stringContaining(message) }));
  });
});

import { Readable } from 'node:stream';
import swagger from '@fastify/swagger';
import Fastify from 'fastify';
import { describe, expect, it } from 'vitest';
import { compareWith, watchAnswers } from './declared-answers.ts';

const time = { type: 'string', format: 'date-time' };
const schema = {
  type: 'object',
  required: ['id'],
  properties: {
    id: { type: 'string', format: 'uuid' },
    at: { anyOf: [time, { type: 'null' }] },
    list: { type: 'array', items: { $ref: '#/components/schemas/Item' } },
  },
};
const description = {
  paths: {
    '/items/{id}': {
      get: {
        operationId: 'getItem',
        responses: {
          200: { content: { 'application/json': { schema } } },
          204: {},
          207: { content: { 'application/x-ndjson; charset=utf-8': { schema: { type: 'string' } } } },
        },
      },
    },
  },
  components: { schemas: { Item: { type: 'object', required: ['name'], properties: { at: time } } } },
};
const id = '0f8fad5b-d9cb-469f-a165-70867728950e';

describe('compareWith', () => {
  const compare = compareWith(description);
  const of = (value: unknown, more: object = {}) =>
    compare({
      operationId: 'getItem',
      status: 200,
      contentType: 'application/json; charset=utf-8',
      body: typeof value === 'string' ? value : JSON.stringify(value),
      ...more,
    });

  it.each([
    [{ id }, []],
    [{ id, at: null, list: [{ name: 1, at: '2026-03-05T01:02:03.123456-05:30' }], more: 1 }, []],
    [{}, [" must have required property 'id'"]],
    [{ id: 'x' }, ['/id must match format "uuid"']],
    [{ id, list: [{}] }, ["/list/0 must have required property 'name'"]],
    [{ id, list: [{ name: 1, at: '2026-03-05T01:02:03' }] }, ['/list/0/at must match format "date-time"']],
    ['{', ['the body is not JSON']],
  ])('%j', (value, found) => {
    expect(of(value)).toEqual(found);
  });

  it('reports what the operation does not list', () => {
    expect(of({ id }, { operationId: 'other' })).toEqual(['the operation is not described']);
    expect(of({ id }, { status: 201 })).toEqual(['the status is not described']);
    expect(of('a', { contentType: 'text/csv' })).toEqual(["the media type 'text/csv' is not described"]);
    expect(of('', { status: 204, contentType: '' })).toEqual([]);
    expect(of('a', { status: 204 })).toEqual(['the response is described without a body']);
    expect(of('{}\n{}', { status: 207, contentType: 'application/x-ndjson' })).toEqual([]);
  });
});

const idSchema = { type: 'object', properties: { id: { type: 'string' } } };

it.each([
  ['text', async () => JSON.stringify({ id: 1 })],
  ['a stream', async () => Readable.from([JSON.stringify({ id: 1 })])],
])('a server with a wrong response as %s fails its suite', async (_name, handler) => {
  const server = Fastify();
  await server.register(swagger, { openapi: { openapi: '3.1.0' } });
  const answers = watchAnswers(server);
  const config = { operation: { operationId: 'getItem' } } as never;
  const response = { 200: { content: { 'application/json': { schema: idSchema } }, description: '' } };
  server.get('/', { schema: { operationId: 'getItem', response }, config }, async (_request, reply) =>
    reply
      .type('application/json')
      .serializer(String)
      .send(await handler()),
  );
  expect((await server.inject('/')).json()).toEqual({ id: 1 });
  expect(() => answers.check()).toThrow('getItem 200: /id must be string');
  await server.close();
});

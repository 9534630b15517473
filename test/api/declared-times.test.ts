import Fastify from 'fastify';
import { expect, it } from 'vitest';
import { findTimesWithoutZone, watchTimes } from './declared-times.ts';

const time = { type: 'string', format: 'date-time' };
const schema = {
  type: 'object',
  properties: {
    at: { anyOf: [time, { type: 'null' }] },
    list: { type: 'array', items: { type: 'object', properties: { at: time } } },
    named: { type: 'object', additionalProperties: time },
    text: { type: 'string' },
  },
};

it('a time without zone is found at every place of a response', () => {
  const without = '2026-03-05T01:02:03.123456';
  const of = (zone: string) => ({
    at: without + zone,
    list: [{ at: without + zone }],
    named: { a: without + zone },
    text: without,
  });
  const found = ['/at', '/list/0/at', '/named/a'].map((path) => `${path}: '${without}'`);
  expect(findTimesWithoutZone(schema, of(''))).toEqual(found);
  for (const zone of ['Z', '+00:00', '-05:30']) expect(findTimesWithoutZone(schema, of(zone))).toEqual([]);
  expect(findTimesWithoutZone(schema, { at: null, list: [] })).toEqual([]);
});

it('a server with such a response fails its suite', async () => {
  // As in Runlake, the serializer changes nothing.
  const server = Fastify().setSerializerCompiler(() => JSON.stringify);
  const times = watchTimes(server);
  server.get('/', { schema: { response: { 200: schema } } }, async () => ({ at: '2026-03-05 01:02:03' }));
  expect((await server.inject('/')).statusCode).toBe(200);
  expect(() => times.check()).toThrow("GET / /at: '2026-03-05 01:02:03'");
  await server.close();
});

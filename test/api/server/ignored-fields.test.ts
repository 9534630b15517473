import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { expect, it } from 'vitest';
import { ignoreUnknownNames } from '../../../api/server/ignored-fields.ts';
import { defineOperation } from '../../../api/server/operation.ts';

it('compares the alternatives of a shape once, not for each of very many values', () => {
  let reads = 0;
  const words = Type.Union([Type.Literal('a'), Type.Literal('b')]);
  const items = new Proxy(words, {
    get: (target, name) => {
      if (name === 'anyOf') reads += 1;
      return Reflect.get(target, name);
    },
  });
  const operation = defineOperation({
    operationId: 'select',
    method: 'POST',
    path: '/select',
    summary: 'test',
    access: { public: true, tenantScope: 'none' },
    schema: { body: Type.Object({ select: Type.Array(items) }), response: { 200: Type.Null() } },
    handler: async () => null,
  });
  for (const value of [1, {}, []]) {
    const body = { select: Array.from({ length: 1_000 }, () => value) };
    const request = { body, raw: { url: '/select' } } as unknown as FastifyRequest;
    ignoreUnknownNames(request, {} as FastifyReply, { ...operation, tag: 'test' }, true);
  }
  expect(reads).toBeLessThan(10);
});

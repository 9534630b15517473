import { expect, it } from 'vitest';
import type { Sql } from '../../../../infra/postgres/database.ts';
import { registerEndUser } from '../../../../pipelines/agents/auth/agent-user.ts';

// Computed by Python's uuid module.
it.each([
  ['6ba7b810-9dad-11d1-80b4-00c04fd430c8', '2ed6657d-e927-568b-95e1-2665a8aea6a2'],
  ['11111111-1111-1111-1111-111111111111', '66ca2af7-2f5a-5e33-a4d0-bd3fe0773ff4'],
])('endUserId in organisation %s, whatever the version of its id', async (organizationId, id) => {
  const sql = { execute: async () => 1 } as unknown as Sql;
  expect(await registerEndUser(sql, organizationId, 'www.example.com')).toBe(id);
});

import { expect, it } from 'vitest';
import { markHoursDirty } from '../../../pipelines/usage/mark-hours-dirty.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { deriveUuid } from '../runs/run-events.ts';

const stores = forSuite(() => freshStores());

const dirtyHours = () =>
  stores.database.query<{ tenant_id: string; hour: string }>(
    'SELECT tenant_id, hour FROM usage_dirty_hours ORDER BY tenant_id, hour',
  );

it('writes one dirty hour per hour and workspace, in one statement', async () => {
  let statements = 0;
  const counting = {
    query: (sql: string, params?: readonly unknown[]) => {
      statements += 1;
      return stores.database.query<never>(sql, params);
    },
  };
  await markHoursDirty(counting, []);
  expect(statements).toBe(0);
  const tenantId = deriveUuid('tenant');
  const hours = [0, 3_600, 3_600, 1_772_704_800].map((hourSeconds) => ({ tenantId, hourSeconds }));
  await markHoursDirty(counting, hours);
  expect(statements).toBe(1);
  expect(await dirtyHours()).toEqual(
    ['1970-01-01T00:00:00.000000Z', '1970-01-01T01:00:00.000000Z', '2026-03-05T10:00:00.000000Z'].map((hour) => ({
      tenant_id: tenantId,
      hour,
    })),
  );
});

it('is rolled back with its transaction', async () => {
  const before = await dirtyHours();
  const rollbackError = new TypeError('undone');
  await expect(
    stores.database.transaction(async (transaction) => {
      await markHoursDirty(transaction, [{ tenantId: deriveUuid('tenant'), hourSeconds: 7_200 }]);
      throw rollbackError;
    }),
  ).rejects.toBe(rollbackError);
  expect(await dirtyHours()).toEqual(before);
});

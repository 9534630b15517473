import { Type } from 'typebox';
import { diskFreePercent } from '../../../infra/clickhouse/disk-free.ts';
import { defineOperation } from '../../server/operation.ts';
import { clickhouseErrors } from '../../server/operation-errors.ts';

export const getInfoHealth = defineOperation({
  operationId: 'getInfoHealth',
  method: 'GET',
  path: '/info/health',
  tag: 'info',
  summary: 'Get the free disk space of ClickHouse',
  access: { public: true, tenantScope: 'none' },
  errors: clickhouseErrors,
  schema: { response: { 200: Type.Object({ clickhouse_disk_free_pct: Type.Number() }) } },
  handler: async ({ services }) => ({ clickhouse_disk_free_pct: await diskFreePercent(services.clickhouse) }),
});

import { Type } from 'typebox';
import { getRun as readRun } from '../../../pipelines/runs/get-run.ts';
import { Timestamp, Uuid } from '../../server/formats.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { warehouseErrors } from '../../server/operation-errors.ts';
import { runExtrasOf } from './run-extras-of.ts';
import { Run } from './run-schema.ts';

export const getRun = defineOperation({
  operationId: 'getRun',
  method: 'GET',
  path: '/runs/:run_id',
  tag: 'runs',
  summary: 'One run with everything that it has',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  unsupported: { query: ['include_messages'], flags: ['include_messages'] },
  errors: ['NOT_FOUND', ...warehouseErrors],
  schema: {
    params: Type.Object({ run_id: Uuid() }),
    query: Type.Object({
      session_id: Type.Optional(Uuid({ description: 'The project that the run has to be in.' })),
      start_time: Type.Optional(
        Timestamp({ description: 'Where other servers look for the run. Runlake finds it by its id alone.' }),
      ),
      exclude_s3_stored_attributes: Type.Boolean({
        default: false,
        description: 'Accepted; nothing of a run is stored elsewhere.',
      }),
      exclude_serialized: Type.Boolean({ default: false, description: 'Leaves `serialized` out.' }),
    }),
    response: { 200: Run },
    // The answer holds JSON exactly as it came, so that nothing may serialise it again.
    produces: 'application/json; charset=utf-8',
  },
  handler: async ({ caller, params, query, services, request }) => {
    const ports = { ...services, extras: runExtrasOf(services, request) };
    const body = await readRun(ports, {
      tenantId: caller.workspaceId,
      runId: params.run_id.toLowerCase(),
      projectId: query.session_id?.toLowerCase(),
      withSerialized: !query.exclude_serialized,
    });
    return new Answer({ body });
  },
});

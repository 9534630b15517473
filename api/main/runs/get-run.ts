import { Type } from 'typebox';
import { getRun as readRun } from '../../../pipelines/runs/get-run.ts';
import { Timestamp, Uuid } from '../../server/formats.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { clickhouseErrors } from '../../server/operation-errors.ts';
import { runExtrasOf } from './run-extras-of.ts';
import { Run } from './run-schema.ts';

export const getRun = defineOperation({
  operationId: 'getRun',
  method: 'GET',
  path: '/runs/:run_id',
  tag: 'runs',
  summary: 'Get a run with all fields',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  unsupported: { query: ['include_messages'], flags: ['include_messages'] },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: Type.Object({ run_id: Uuid() }),
    query: Type.Object({
      session_id: Type.Optional(Uuid({ description: '404 if the run is not in this project.' })),
      start_time: Type.Optional(Timestamp({ description: 'Accepted; Runlake needs only the id of the run.' })),
      exclude_s3_stored_attributes: Type.Boolean({
        default: false,
        description: 'Accepted; all fields are stored with the run.',
      }),
      exclude_serialized: Type.Boolean({ default: false, description: 'Omit `serialized`.' }),
    }),
    response: { 200: Run },
    // The response contains stored JSON, which must not be re-serialised.
    produces: 'application/json; charset=utf-8',
  },
  handler: async ({ caller, params, query, services, request }) => {
    const deps = { ...services, extras: runExtrasOf(services, request) };
    const body = await readRun(deps, {
      tenantId: caller.workspaceId,
      runId: params.run_id.toLowerCase(),
      projectId: query.session_id?.toLowerCase(),
      withSerialized: !query.exclude_serialized,
    });
    return new Answer({ body });
  },
});

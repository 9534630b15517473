import { Type } from 'typebox';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { maxTracesPerRequest, requestDeletion, requestKeep } from '../../pipelines/retention/request-changes.ts';
import { optional, Text, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { normaliseIds } from './runs.ts';

const maxPairs = 20;

const TraceIds = Type.Array(Uuid(), { minItems: 1, maxItems: maxTracesPerRequest });
const Message = Type.Object({ message: Type.String() });

const deletion =
  'Reads leave the traces out within a few minutes. After two hours their runs, attachments, feedback and streamed ' +
  'events are deleted, and so is what arrives of them later. Usage stays. Ids of other projects are ignored.';
const deleteRuns = defineOperation({
  operationId: 'deleteRuns',
  method: 'POST',
  path: '/runs/delete',
  summary: 'Delete traces by id or by metadata',
  description: `Give either \`trace_ids\` or \`metadata\`. ${deletion}`,
  access: { permission: 'runs:delete', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    body: Type.Object({
      session_id: Uuid({ description: 'The project of the traces.' }),
      trace_ids: optional(TraceIds),
      metadata: optional(
        Dictionary(Text({ maxLength: 10_000 }), {
          propertyNames: Text({ maxLength: 1_000 }),
          maxProperties: maxPairs,
          description: 'Deletes the traces that have a run whose metadata contains all these pairs.',
        }),
      ),
    }),
    response: { 200: Message },
  },
  handler: async ({ caller, body, services }) => {
    await requestDeletion(services.database, caller.workspaceId, {
      projectId: body.session_id,
      traceIds: normaliseIds(body.trace_ids),
      metadata: body.metadata ?? undefined,
    });
    return { message: 'Deletion requested' };
  },
});

const ProjectTraces = Type.Object({
  session_id: Uuid({ description: 'The project of the traces.' }),
  trace_ids: TraceIds,
});

const deleteTraces = defineOperation({
  operationId: 'deleteTraces',
  method: 'POST',
  path: '/runs/delete/traces',
  summary: 'Delete traces by id',
  description: deletion,
  access: { permission: 'runs:delete', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { body: ProjectTraces, response: { 200: Message } },
  handler: async ({ caller, body, services }) => {
    const traces = { projectId: body.session_id, traceIds: normaliseIds(body.trace_ids) };
    await requestDeletion(services.database, caller.workspaceId, traces);
    return { message: 'Deletion requested' };
  },
});

const keepTraces = defineOperation({
  operationId: 'keepTraces',
  method: 'POST',
  path: '/runs/keep',
  summary: 'Make traces longlived',
  description:
    'The traces get the retention of the tier `longlived` within a few minutes. Feedback on a run does the same, ' +
    'unless it has `extend_trace_retention: false`. A trace that has expired stays expired.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { body: ProjectTraces, response: { 200: Message } },
  handler: async ({ caller, body, services }) => {
    const traces = { projectId: body.session_id, traceIds: normaliseIds(body.trace_ids) ?? [] };
    await requestKeep(services.database, caller.workspaceId, traces);
    return { message: 'Traces will be kept' };
  },
});

export const traceOperations = [deleteRuns, deleteTraces, keepTraces];

import { Type } from 'typebox';
import { createProject } from '../../../pipelines/projects/create-project.ts';
import { defineOperation } from '../../server/operation.ts';
import { NewSession, Session, showSession } from './session-schema.ts';

export const createSession = defineOperation({
  operationId: 'createSession',
  method: 'POST',
  path: '/sessions',
  tag: 'projects',
  summary: 'Create a tracing project',
  description:
    'With `upsert`, an existing project with that name is updated: given fields replace its fields, except for an empty `extra`.',
  access: { permission: 'projects:create', tenantScope: 'workspace' },
  unsupported: { body: ['tag_value_ids'] },
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: {
    query: Type.Object({ upsert: Type.Boolean({ default: false }) }),
    body: NewSession,
    response: { 200: Session },
  },
  handler: async ({ caller, query, body, services }) => {
    const project = {
      id: body.id,
      name: body.name,
      description: body.description,
      extra: body.extra,
      startTime: body.start_time,
      endTime: body.end_time,
      defaultDatasetId: body.default_dataset_id,
      referenceDatasetId: body.reference_dataset_id,
      traceTier: body.trace_tier,
      numExamples: body.num_examples,
      numRepetitions: body.num_repetitions,
      evaluatorKeys: body.evaluator_keys,
    };
    return showSession(
      await createProject(services.database, caller.workspaceId, project, {
        upsert: query.upsert,
        maxProjects: services.config.maxProjects,
      }),
    );
  },
});
